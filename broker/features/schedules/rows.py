"""Rows of `schedules`, and of the outcomes of their ticks (J2)."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Text, cast, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from broker.core.catalog.page_bytes import bytes_of, cut_to_bytes
from broker.db.driver import statements
from broker.db.driver.database import ResourceConnection
from broker.db.driver.hot_connection import NOTHING_CHANGED, Bound, HotConnection
from broker.db.driver.locks import lock_name
from broker.db.driver.statements import BEGIN
from broker.db.schema.tables import schedule_ticks, schedules
from broker.features.schedules.schedule import KEPT_TICKS, Definition, Schedule, TickOutcome, TickRecord
from broker.model.page import Page

_FIND_DUE_PROJECTS = statements.hot("find_due_projects")
_LOCK_DUE_SCHEDULE = statements.hot("lock_due_schedule")
_LOCK_SCHEDULE = statements.hot("lock_schedule")
_WRITE_SCHEDULE = statements.hot("write_schedule")
_INSERT_SCHEDULE_TICK = statements.hot("insert_schedule_tick")
_DELETE_OLD_SCHEDULE_TICKS = statements.hot("delete_old_schedule_ticks")
_READ_NEXT_TICK = statements.hot("read_next_tick")

MAX_DUE_ROWS = 1_000  # due schedules whose projects one query returns

_definition = msgspec.json.Decoder(Definition).decode
_encode = msgspec.json.Encoder().encode


class UnreadableSchedule(Exception):
    """The stored definition of a schedule cannot be read; nothing has changed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"What is stored of the schedule cannot be read (resource={name}).")
        self.name = name


async def find_due_projects(
    connection: HotConnection, *, now: datetime, known: Collection[str], but: Sequence[str] = ()
) -> list[str]:
    """Projects ("projects/p") with schedules that are due, none in `known`, and for no schedule of the names `but`.

    At most MAX_DUE_ROWS, those whose schedules have been due for longest.
    """
    parameters = {"now": now, "known": list(known), "but": list(but), "most": MAX_DUE_ROWS}
    [rows] = await connection.run((_FIND_DUE_PROJECTS, parameters))
    return [row.project for row in rows]


async def lock_due(
    connection: HotConnection, *, now: datetime, project: str, but: Sequence[str] = ()
) -> Schedule | None:
    """Begin a transaction and lock a schedule of the project that is due, none of the names `but`; None: there is
    none, nor a transaction.
    """
    return await _locked(connection, (_LOCK_DUE_SCHEDULE, {"now": now, "project": project, "but": list(but)}))


async def lock_for_tick(connection: HotConnection, *, name: str) -> Schedule | None:
    """The same of one by its name."""
    return await _locked(connection, (_LOCK_SCHEDULE, {"name": name}))


async def _locked(connection: HotConnection, bound: Bound) -> Schedule | None:
    _, rows = await connection.run((BEGIN, {}), bound)
    if not rows:
        await connection.run(*NOTHING_CHANGED)
        return None
    try:
        return _schedule(rows[0]._asdict())
    except Exception as error:
        await connection.close()  # its transaction is open
        raise UnreadableSchedule(rows[0].name) from error


async def read_next_tick(connection: HotConnection, *, but: Sequence[str] = ()) -> datetime | None:
    """Returns when the next tick of any schedule is due, without the names `but`; None: never."""
    [rows] = await connection.run((_READ_NEXT_TICK, {"but": list(but)}))
    return rows[0].next_at if rows else None


def ticks_written(schedule: Schedule, records: Sequence[TickRecord], next_at: datetime | None) -> list[Bound]:
    """Writes down what became of ticks, and when the next one is, in their transaction."""
    if not records:
        return []
    last = records[-1].number
    values = {
        "name": schedule.name,
        "next_at": next_at or records[-1].ran_at,
        "ends": next_at is None,
        "ticks": last,
        "last_outcome": records[-1].outcome.value,
    }
    entries: list[Bound] = [
        (
            _INSERT_SCHEDULE_TICK,
            {
                "schedule": schedule.name,
                "number": record.number,
                "planned_at": record.planned_at or record.ran_at,
                "by_hand": record.planned_at is None,
                "ran_at": record.ran_at,
                "outcome": record.outcome.value,
                "reason": record.reason,
                "message_id": record.message_id,
            },
        )
        for record in records
    ]
    trim = {"schedule": schedule.name, "number": last - KEPT_TICKS}
    return [(_WRITE_SCHEDULE, values), *entries, (_DELETE_OLD_SCHEDULE_TICKS, trim)]


async def count_schedules(connection: ResourceConnection, *, project: str) -> int:
    """Counts the schedules of a project; until the transaction ends no other transaction counts them."""
    await lock_name(connection, f"{project}/schedules")
    return await connection.scalar(select(func.count()).select_from(schedules).where(_is_of(project))) or 0


async def find_schedule(connection: ResourceConnection, *, name: str, lock: bool = False) -> Schedule | None:
    """Finds a schedule; `lock`: it is not changed until the transaction ends, and does not tick."""
    query = select(schedules).where(schedules.c.name == name)
    row = (await connection.execute(query.with_for_update() if lock else query)).one_or_none()
    return None if row is None else _schedule(row._mapping)


async def list_schedules(connection: ResourceConnection, *, project: str, page: Page) -> list[Schedule]:
    """A page of a project's, by name, and one more if there is one."""
    query = select(schedules).where(_is_of(project), schedules.c.name > page.after)
    rows = await connection.execute(query.order_by(schedules.c.name).limit(page.size + 1))
    return [_schedule(row._mapping) for row in rows]


async def cut_page_of_schedules(connection: ResourceConnection, *, project: str, page: Page) -> Page:
    """A page that is not too large in bytes."""
    sizes = select(bytes_of(cast(schedules.c.definition, Text)))
    listed = sizes.where(_is_of(project), schedules.c.name > page.after).order_by(schedules.c.name)
    return await cut_to_bytes(connection, listed, page)


async def write_schedule(connection: ResourceConnection, *, schedule: Schedule) -> None:
    """Writes a schedule, in place of one of its name."""
    values = {column.name: getattr(schedule, column.name) for column in schedules.columns}
    values["definition"] = msgspec.json.decode(_encode(schedule.definition))
    new = insert(schedules).values(**values)
    await connection.execute(new.on_conflict_do_update(index_elements=["name"], set_=values))


async def delete_schedule(connection: ResourceConnection, *, name: str) -> bool:
    """Deletes a schedule with its history."""
    found = (await connection.execute(delete(schedules).where(schedules.c.name == name))).rowcount
    await connection.execute(delete(schedule_ticks).where(schedule_ticks.c.schedule == name))
    return bool(found)


async def list_ticks(connection: ResourceConnection, *, name: str, before: int, size: int) -> list[TickRecord]:
    """Entries of a history, the newest first, of numbers below `before`."""
    query = select(schedule_ticks).where(schedule_ticks.c.schedule == name, schedule_ticks.c.number < before)
    rows = await connection.execute(query.order_by(schedule_ticks.c.number.desc()).limit(size))
    found = []
    for row in rows:
        values = dict(row._mapping)
        del values["schedule"]
        found.append(TickRecord(**values | {"outcome": TickOutcome(row.outcome)}))
    return found


def _is_of(project: str) -> Any:
    """Names that begin so; the 0 comes after the slash."""
    return (schedules.c.name > f"{project}/schedules/") & (schedules.c.name < f"{project}/schedules0")


def _schedule(row: Mapping[Any, Any]) -> Schedule:
    definition = row["definition"]
    read = definition if isinstance(definition, str) else _encode(definition)
    return Schedule(**{**row, "definition": _definition(read)})
