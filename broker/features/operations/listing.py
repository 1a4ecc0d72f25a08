"""The order and the filter of a list of operations."""

from enum import StrEnum

from broker.features.operations.operation import Operation, OperationState
from broker.model.errors import InvalidArgument
from broker.model.list_filter import TextComparison, parse_list_filter, refused_field, refused_operator
from broker.model.page import Page, check_page_size, invalid_page_token, parse_page, parse_page_token

STATE = "state"
TEXTS = ("startedBy", "target", "verb")


class Order(StrEnum):
    """The orders of a list.  The names of operations ascend in time, so they order operations by the time of
    creation.
    """

    OLDEST_FIRST = "createTime"
    NEWEST_FIRST = "createTime desc"


def parse_order(text: str) -> Order:
    """Parses `orderBy`; if it is empty, the oldest operation comes first.  Raises InvalidArgument."""
    match text.split():
        case [] | ["createTime"] | ["createTime", "asc"]:
            return Order.OLDEST_FIRST
        case ["createTime", "desc"]:
            return Order.NEWEST_FIRST
    raise InvalidArgument(f"orderBy must be createTime or createTime desc (orderBy={text[:100]}).")


def operation_page_key(operation: Operation, order: Order) -> str | tuple[str, str]:
    """Returns the position of a list after an operation.  A token of one order is not valid in the other."""
    return operation.name if order is Order.OLDEST_FIRST else (operation.name, order.value)


def parse_operation_page(project: str, size: int, token: str, order: Order) -> Page:
    """Raises InvalidArgument for a token that no list in this order returned."""
    if order is Order.OLDEST_FIRST:
        return parse_page(size, token)
    if not token:
        return Page(check_page_size(size), "")
    after, of_order = parse_page_token(token, str, str)
    if of_order != order or "\0" in after or not after.startswith(f"{project}/operations/"):
        raise invalid_page_token(token)
    return Page(check_page_size(size), after)


def parse_operation_filter(text: str) -> list[TextComparison]:
    """Raises InvalidArgument."""
    comparisons = parse_list_filter(text, example="state=RUNNING")
    for field, operator, value in comparisons:
        if field not in (STATE, *TEXTS):
            raise refused_field(field, sorted([STATE, *TEXTS]))
        if operator not in ("=", "!=", ":") or (field == STATE and operator == ":"):
            raise refused_operator(field, operator)
        if field == STATE and value not in list(OperationState):
            states = ", ".join(OperationState)
            raise InvalidArgument(f"filter: state is one of {states}, not {value[:100]!r}.")
    return comparisons
