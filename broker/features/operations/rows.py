"""Rows of `operations` (G1)."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, insert, select, update

from broker.db.driver import statements
from broker.db.driver.database import Connection, ResourceConnection
from broker.db.driver.hot_connection import NOTHING_CHANGED, Bound, HotConnection
from broker.db.driver.locks import lock_name
from broker.db.driver.statements import BEGIN
from broker.db.driver.text_conditions import text_condition
from broker.db.schema.tables import operations
from broker.features.operations.listing import STATE, Order
from broker.features.operations.operation import Operation, OperationState, Step, added, next_step_at
from broker.model.list_filter import TextComparison
from broker.model.operation_verb import Verb, known_verb
from broker.model.page import Page

_LOCK_OPERATION = statements.hot("lock_operation")
_WRITE_OPERATION = statements.hot("write_operation")
_READ_NEXT_STEP = statements.hot("read_next_step")
_DELETE_OLD = "DELETE FROM operations WHERE ended_at < %(before)s"

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


async def lock_operation(connection: HotConnection, *, verbs: Collection[Verb], now: datetime) -> Operation | None:
    """Begins a transaction and locks an operation of these verbs whose next step is due.

    Returns None, and ends the transaction, if there is none.
    """
    _, rows = await connection.run((BEGIN, {}), (_LOCK_OPERATION, {"now": now, "verbs": list(verbs)}))
    if not rows:
        await connection.run(*NOTHING_CHANGED)
        return None
    values = rows[0]._asdict()
    texts = {name: _decode(values[name]) for name in ("request", "progress", "counts")}
    return Operation(**{**values, **texts, "verb": known_verb(values["verb"])})


def step_written(operation: Operation, step: Step, now: datetime) -> Bound:
    """Returns the statement that stores the result of a step, in the transaction of the step."""
    done = operation.done + step.done
    return _WRITE_OPERATION, {
        "name": operation.name,
        "progress": _encode(step.progress).decode(),
        "counts": _encode(added(operation.counts, step.counts)).decode(),
        "done": done,
        "total": operation.total,
        "now": now,
        "next_step_at": next_step_at(operation, step.done, now),
        "ended": step.ended,
    }


@dataclass(frozen=True, slots=True)
class Ahead:
    """The next work of a runner.

    `next_step_at`: when the next step of any operation is due (None: none is under way).  `unknown`: the name and
    the verb of an operation under way whose verb this broker does not know (None: there is none).
    """

    next_step_at: datetime | None = None
    unknown: tuple[str, str] | None = None


async def read_next_step(connection: HotConnection, *, verbs: Collection[Verb]) -> Ahead:
    """Returns when the next step of an operation of these verbs is due."""
    [rows] = await connection.run((_READ_NEXT_STEP, {"verbs": list(verbs)}))
    due = next((row.next_step_at for row in rows if row.next_step_at is not None), None)
    return Ahead(due, next(((row.name, row.verb) for row in rows if row.name is not None), None))


async def insert_operation(connection: ResourceConnection, *, operation: Operation) -> None:
    values = {
        column.name: getattr(operation, column.name)
        for column in operations.columns
        if column.name not in ("error_code", "error_message")
    }
    await connection.execute(insert(operations).values(**values))


async def count_running(connection: ResourceConnection, *, project: str) -> int:
    """Returns the number of operations of a project that are under way.

    Keeps other transactions from counting them until this one ends.
    """
    await lock_name(connection, f"{project}/operations")
    ours = (operations.c.project == project) & operations.c.ended_at.is_(None)
    return await connection.scalar(select(func.count()).select_from(operations).where(ours)) or 0


async def find_operation(connection: ResourceConnection, *, name: str) -> Operation | None:
    row = (await connection.execute(select(operations).where(operations.c.name == name))).one_or_none()
    return None if row is None else _operation(row._mapping)


async def list_operations(
    connection: ResourceConnection,
    *,
    project: str,
    page: Page,
    order: Order = Order.OLDEST_FIRST,
    comparisons: Sequence[TextComparison] = (),
) -> list[Operation]:
    """Returns the operations of a project that meet all comparisons, up to one more than a page."""
    first, end = f"{project}/operations/", f"{project}/operations0"  # the 0 comes after the slash
    name = operations.c.name
    if order is Order.OLDEST_FIRST:
        query = select(operations).where(name > max(page.after, first), name < end).order_by(name)
    else:
        query = select(operations).where(name > first, name < (page.after or end)).order_by(name.desc())
    rows = await connection.execute(query.where(*map(_condition, comparisons)).limit(page.size + 1))
    return [_operation(row._mapping) for row in rows]


_TEXTS: Mapping[str, ColumnElement[Any]] = {
    "verb": operations.c.verb,
    "target": operations.c.target,
    "startedBy": operations.c.started_by,
}
_CODE = func.coalesce(operations.c.error_code, "")
_STATES = {
    OperationState.RUNNING: operations.c.ended_at.is_(None),
    OperationState.SUCCEEDED: operations.c.ended_at.is_not(None) & (_CODE == ""),
    OperationState.CANCELLED: operations.c.ended_at.is_not(None) & (_CODE == "CANCELLED"),
    OperationState.FAILED: operations.c.ended_at.is_not(None) & _CODE.not_in(("", "CANCELLED")),
}


def _condition(comparison: TextComparison) -> ColumnElement[bool]:
    field, operator, value = comparison
    if field != STATE:
        return text_condition(_TEXTS[field], operator, value)
    is_in_state = _STATES[OperationState(value)]
    return is_in_state if operator == "=" else ~is_in_state


async def end_operation(
    connection: ResourceConnection, *, name: str, code: str, message: str, now: datetime
) -> bool:
    """Ends an operation that is under way, after the current step if there is one.

    Returns False if the operation does not exist or has ended.
    """
    ended = {"ended_at": now, "updated_at": now, "error_code": code, "error_message": message}
    running = (operations.c.name == name) & operations.c.ended_at.is_(None)
    return bool((await connection.execute(update(operations).where(running).values(**ended))).rowcount)


async def put_off(connection: ResourceConnection, *, name: str, until: datetime) -> None:
    """Postpones the next step of an operation."""
    running = (operations.c.name == name) & operations.c.ended_at.is_(None)
    await connection.execute(update(operations).where(running).values(next_step_at=until))


async def delete_operation(connection: ResourceConnection, *, name: str) -> bool:
    """Deletes an operation that has ended.  Returns whether there was one."""
    ended = (operations.c.name == name) & operations.c.ended_at.is_not(None)
    return bool((await connection.execute(delete(operations).where(ended))).rowcount)


async def delete_old_operations(connection: Connection, *, now: datetime, days: int) -> None:
    """Deletes operations that ended more than `days` days ago."""
    await connection.execute(_DELETE_OLD, {"before": now - timedelta(days=days)})


def _operation(row: Mapping[Any, Any]) -> Operation:
    values = dict(row) | {"verb": known_verb(row["verb"])}
    return Operation(**values | {name: row[name] or "" for name in ("error_code", "error_message")})
