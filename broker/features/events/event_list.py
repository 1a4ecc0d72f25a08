"""The order, the filter and the pages of a list of events."""

from dataclasses import dataclass
from enum import StrEnum

from broker.model.errors import InvalidArgument
from broker.model.list_filter import TextComparison, parse_list_filter, refused_field, refused_operator
from broker.model.page import check_page_size, invalid_page_token, parse_page_token
from broker.model.timestamps import parse_timestamp

MARK = "mark"  # the type of a mark; those of events are in core/context/event.py
TIME = "time"
TEXTS = ("label", "subject", "text", "type")


class Order(StrEnum):
    """The orders of a list.  Ids ascend in time."""

    NEWEST_FIRST = "time desc"
    OLDEST_FIRST = "time"


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of at most `size` events that come after the one with the id `after` (0: the first page)."""

    size: int
    after: int
    order: Order


def parse_event_page(size: int, token: str, order_by: str) -> EventPage:
    """Parses `orderBy`; if it is empty, the newest event comes first.

    Raises InvalidArgument, also for a token that no list in this order returned.
    """
    order = _parse_order(order_by)
    size = check_page_size(size)
    if not token:
        return EventPage(size, 0, order)
    after, of_order = parse_page_token(token, int, str)
    if of_order != order or after <= 0:
        raise invalid_page_token(token)
    return EventPage(size, after, order)


def _parse_order(text: str) -> Order:
    match text.split():
        case [] | ["time", "desc"]:
            return Order.NEWEST_FIRST
        case ["time"] | ["time", "asc"]:
            return Order.OLDEST_FIRST
    raise InvalidArgument(f"orderBy must be time or time desc (orderBy={text[:100]}).")


def parse_event_filter(text: str) -> list[TextComparison]:
    """Raises InvalidArgument."""
    comparisons = parse_list_filter(text, example="type=mark")
    for field, operator, value in comparisons:
        if field == TIME:
            if operator not in ("<", "<=", ">", ">="):
                raise refused_operator(field, operator)
            parse_timestamp(value, "filter")
        elif field not in TEXTS:
            raise refused_field(field, sorted([TIME, *TEXTS]))
        elif operator not in ("=", "!=", ":"):
            raise refused_operator(field, operator)
    return comparisons
