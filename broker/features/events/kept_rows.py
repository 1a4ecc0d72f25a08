"""Rows of `project_events`: the last events of a project, and its marks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, func, insert, not_, or_, select, text

from broker.db.driver import named, statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.text_conditions import text_condition
from broker.db.schema.tables import project_events
from broker.features.events.event_list import MARK, TIME, EventPage, Order
from broker.model.list_filter import TextComparison
from broker.model.timestamps import format_timestamp, parse_timestamp

MAX_KEPT = 1_000  # events of a project, and as many marks

_DELETE_OLDEST = statements.load("delete_oldest_events")
_NEXT_ID = text("SELECT nextval(pg_get_serial_sequence('waiting_events', 'event_id'))")


class KeptEvent(NamedTuple):
    """An event or a mark; `body` has the fields that the API shows."""

    event_id: int
    occurred_at: datetime
    body: Mapping[str, Any]


async def insert_kept(
    connection: ResourceConnection, *, project: str, events: Sequence[KeptEvent], is_mark: bool
) -> None:
    """Inserts events of a project, and deletes those that are too many."""
    rows = [
        {
            "project": project,
            "is_mark": is_mark,
            "event_id": event.event_id,
            "occurred_at": parse_timestamp(format_timestamp(event.occurred_at), "time"),  # as it is shown
            "event": dict(event.body),
        }
        for event in events
    ]
    await connection.execute(insert(project_events).values(rows))
    oldest = {"project": project, "is_mark": is_mark, "most": MAX_KEPT}
    await named.change(connection, _DELETE_OLDEST, oldest)


async def insert_mark(
    connection: ResourceConnection, *, project: str, body: Mapping[str, Any], now: datetime
) -> KeptEvent:
    """Inserts a mark.  Returns it with its id."""
    mark = KeptEvent(int(await connection.scalar(_NEXT_ID)), now, body)
    await insert_kept(connection, project=project, events=[mark], is_mark=True)
    return mark


async def list_kept(
    connection: ResourceConnection, *, project: str, page: EventPage, comparisons: Sequence[TextComparison]
) -> list[KeptEvent]:
    """Returns the events and marks of a project that meet all comparisons, up to one more than a page."""
    event_id = project_events.c.event_id
    query = select(project_events).where(project_events.c.project == project, *map(_condition, comparisons))
    if page.order is Order.OLDEST_FIRST:
        query = query.where(event_id > page.after).order_by(event_id)
    else:
        query = query.order_by(event_id.desc())
        query = query.where(event_id < page.after) if page.after else query
    rows = await connection.execute(query.limit(page.size + 1))
    return [KeptEvent(row.event_id, row.occurred_at, row.event) for row in rows]


_event = project_events.c.event
_TEXTS: Mapping[str, ColumnElement[Any]] = {
    "subject": func.coalesce(_event["subject"].astext, ""),
    "text": func.coalesce(_event["text"].astext, ""),
    "type": _event["type"].astext,
}


def _condition(comparison: TextComparison) -> ColumnElement[bool]:
    field, operator, value = comparison
    if field == TIME:
        moment = parse_timestamp(value, "filter")
        column = project_events.c.occurred_at
        return {
            "<": column < moment,
            "<=": column <= moment,
            ">": column > moment,
            ">=": column >= moment,
        }[operator]
    if field == "label":
        return _label_condition(operator, value)
    if field == "type" and value == MARK and operator in ("=", "!="):  # charts read marks alone, by the primary key
        return project_events.c.is_mark == (operator == "=")
    return text_condition(_TEXTS[field], operator, value)


def _label_condition(operator: str, value: str) -> ColumnElement[bool]:
    """Compares the value of a label of a mark with that of KEY=VALUE; KEY alone, or after `:`, matches if the label
    exists.
    """
    key, is_pair, wanted = value.partition("=")
    label: ColumnElement[Any] = _event["labels"][key].astext
    if operator == ":" or not is_pair:
        return label.is_(None) if operator == "!=" else label.is_not(None)
    is_equal = text_condition(label, "=", wanted)
    return or_(label.is_(None), not_(is_equal)) if operator == "!=" else is_equal
