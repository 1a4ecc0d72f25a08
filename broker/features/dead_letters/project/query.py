"""Queries for the dead letters of a project: filters, groups, orders and pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from broker.features.dead_letters.dead_letter_list import DeadLetter
from broker.model.errors import InvalidArgument
from broker.model.failure_cause import FailureCause
from broker.model.list_filter import TextComparison, parse_list_filter, refused_field, refused_operator
from broker.model.message_preview import WHOLE
from broker.model.page import check_page_size, invalid_page_token, parse_page_token
from broker.model.timestamps import parse_timestamp

Order = Literal["count desc", "newestTime desc"]

TRAITS = ("sourceSubscription", "sourceTopic", "reason", "status", "fingerprint", "hour")
TIME = "deadLetterTime"
ORDERS: tuple[Order, ...] = ("count desc", "newestTime desc")
_EXAMPLE = 'reason = "push 503" AND deadLetterTime >= "2026-11-23T08:00:00Z"'
_COMPARED = {"<", "<=", ">", ">="}


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison of a trait with a text, or of the time of the dead letter."""

    field: str
    operator: str
    value: str | datetime


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a dead letter in a list that begins with the newest."""

    publish_time: datetime
    shard_id: int
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListQuery:
    """Options of a page of at most `size` dead letters that meet all conditions.

    `after`: the position after which it begins (None: with the newest).  `preview_bytes`: the number of bytes of
    each message's data that are shown.
    """

    project: str
    size: int
    conditions: Sequence[Condition] = ()
    after: Position | None = None
    preview_bytes: int = WHOLE


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """The position of a group: its count or newest time, by which groups are ordered, and its key."""

    amount: int | datetime
    key: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQuery:
    """Options of a page of at most `size` groups of the dead letters that meet all conditions.

    `until`: messages that were dead-lettered later are not counted, so that later pages match the first one (None:
    this is the first page).
    """

    project: str
    size: int
    by: tuple[str, ...]
    order: Order = "count desc"
    conditions: Sequence[Condition] = ()
    until: datetime | None = None
    after: GroupPosition | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDeadLetter:
    """A dead letter, with the subscription and the topic that it comes from, and its cause."""

    dead_letter: DeadLetter
    subscription: str
    topic: str
    cause: FailureCause
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectGroup:
    """Dead letters with the same traits.  `message_id`: the id of one of them in its dead-letter topic.

    `cause`: the first of their causes in the order of texts; all have the same one if they are grouped by
    fingerprint.
    """

    key: tuple[str, ...]
    count: int
    oldest: datetime
    newest: datetime
    message_id: str
    cause: FailureCause


def parse_list_query(
    project: str, size: int, token: str, *, filter_text: str, preview_bytes: int = WHOLE
) -> ListQuery:
    """Returns the options of a page.  Raises InvalidArgument."""
    return ListQuery(
        project=project,
        size=check_page_size(size),
        conditions=parse_conditions(filter_text),
        after=Position(*parse_page_token(token, datetime, int, int)) if token else None,
        preview_bytes=preview_bytes,
    )


def parse_group_query(
    project: str, size: int, token: str, *, filter_text: str, group_by: str, order_by: str
) -> GroupQuery:
    """Returns the options of a page of groups.  Raises InvalidArgument."""
    by = tuple(trait.strip() for trait in group_by.split(","))
    unknown = next((trait for trait in by if trait not in TRAITS), None)
    if unknown is not None or len(set(by)) < len(by):
        raise InvalidArgument(
            f"groupBy must name one or more of {', '.join(TRAITS)}, each once (groupBy={group_by[:200]})."
        )
    order = next((each for each in ORDERS if each == (" ".join(order_by.split()) or ORDERS[0])), None)
    if order is None:
        raise InvalidArgument(f"orderBy must be one of: {', '.join(ORDERS)} (orderBy={order_by[:100]}).")
    until, after = None, None
    if token:
        amount_kind: Any = int if order == ORDERS[0] else datetime
        until, amount, *key = parse_page_token(token, datetime, amount_kind, *(str for _ in by))
        if any("\0" in value for value in key):
            raise invalid_page_token(token)
        after = GroupPosition(amount, tuple(key))
    return GroupQuery(
        project=project,
        size=check_page_size(size),
        by=by,
        order=order,
        conditions=parse_conditions(filter_text),
        until=until,
        after=after,
    )


def parse_conditions(filter_text: str) -> Sequence[Condition]:
    """Returns the conditions of a filter.  Raises InvalidArgument."""
    return [_condition(each) for each in parse_list_filter(filter_text, example=_EXAMPLE)]


def _condition(comparison: TextComparison) -> Condition:
    field, operator, value = comparison
    if field == TIME:
        if operator not in _COMPARED:
            raise refused_operator(field, operator)
        return Condition(field, operator, parse_timestamp(value, "filter"))
    if field not in TRAITS:
        raise refused_field(field, [*TRAITS, TIME])
    if operator in _COMPARED:
        raise refused_operator(field, operator)
    return Condition(field, operator, value)
