"""The audit log under floods: bounded in memory and in its table, without losing a count or a change (E5)."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, LiteralString, cast

import pytest
from psycopg import sql

from broker.access.audit import audit_rows as audit_entries
from broker.access.audit import noted_calls
from broker.access.audit import trail as trail_module
from broker.access.audit.audit_entry import Audited, AuditEntry
from broker.access.audit.audit_rows import delete_old_audit_entries, insert_audit_entries
from broker.access.audit.noted_calls import OTHERS, SAMPLES
from broker.access.audit.trail import AuditTrail
from broker.db.driver.database import Database
from broker.model.errors import Unavailable
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import eventually


def _denied(number: int, *, principal: str = "") -> Audited:
    name = f"projects/p/topics/t{number}"
    return Audited(method="GetTopic", resource=name, code="PERMISSION_DENIED", principal=principal)


def _changed(number: int) -> Audited:
    return Audited(method="CreateTopic", resource=f"projects/p/topics/t{number}", code="OK")


async def test_a_flood_of_one_callers_denials_is_sampled_and_every_one_is_counted(database: Database) -> None:
    clock = _Clock(await database.now())
    trail = AuditTrail(database, now=clock, states=StateChanges())
    for second in range(60):
        clock.now += timedelta(seconds=1)
        for number in range(900):
            trail.note(_denied(second * 900 + number))
        trail.note(_denied(second, principal="user:ann@example.com"))
        trail._take_noted()
        await trail.flush()
    clock.now += timedelta(seconds=1)
    trail._take_noted()
    trail.note(_denied(-1))  # in the next window
    await trail.close()
    written = await _rows(database, "method, principal, times")
    assert sum(times for _, principal, times in written if not principal) == 60 * 900 + 1
    assert [row for row in written if row[0] == OTHERS] == [(OTHERS, "", 60 * 900 - SAMPLES)]
    assert len([row for row in written if not row[1]]) == SAMPLES + 2
    assert len([row for row in written if row[1]]) == 60  # the other caller's were all told apart


async def test_a_flood_of_callers_is_a_bounded_number_of_rows_and_none_is_forgotten(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noted_calls, "MAX_DISTINCT", 50)
    trail = AuditTrail(database, now=await _fixed(database), states=StateChanges())
    for number in range(200):
        trail.note(_denied(number, principal=f"user:{number}@example.com"))
        trail.note(_denied(0, principal="user:0@example.com"))
    await trail.close()
    written = await _rows(database, "times")
    assert sum(times for (times,) in written) == 400
    assert len(written) == 50 + 51


async def test_what_succeeds_is_not_sampled(database: Database) -> None:
    trail = AuditTrail(database, now=await _fixed(database), states=StateChanges())
    for number in range(SAMPLES + 10):
        trail.note(Audited(method="Publish", resource=f"projects/p/topics/t{number}", code="OK"))
    await trail.close()
    assert await _rows(database, "count(DISTINCT resource)") == [(SAMPLES + 10,)]


async def test_denials_that_wait_for_the_table_take_no_capacity_from_changes(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_module, "MAX_WAITING", 3)
    monkeypatch.setattr(trail_module, "MAX_NOTED", 3)
    monkeypatch.setattr(trail_module, "RECORD_SECONDS", 0.05)
    trail = AuditTrail(database, now=await _fixed(database), states=StateChanges())
    for number in range(10):
        trail.note(_denied(number))
    trail._take_noted()
    for number in range(3):
        await trail.record(_changed(number))
    await trail.flush()
    assert await _rows(database, "is_change, count(*)", "GROUP BY 1 ORDER BY 1") == [(False, 3), (True, 3)]


async def test_while_the_table_cannot_be_written_entries_wait_and_changes_are_answered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_module, "RECORD_SECONDS", 0.05)
    states = StateChanges()
    trail = AuditTrail(database, now=await _fixed(database), states=states)
    working = trail_module.insert_audit_entries

    async def failing(*_: Any, **__: Any) -> None:
        raise Unavailable("not now")

    monkeypatch.setattr(trail_module, "insert_audit_entries", failing)
    await trail.record(_denied(1))  # returns
    with pytest.raises(Unavailable):
        await trail.flush()
    assert states.lasts("entries of the audit log in the table")
    monkeypatch.setattr(trail_module, "insert_audit_entries", working)
    await trail.flush()
    assert not states.lasts("entries of the audit log in the table")
    async with database.connection() as connection:
        rows = await (await connection.execute("SELECT resource FROM audit_entries")).fetchall()
    assert rows == [("projects/p/topics/t1",)]


async def test_changes_at_the_same_time_are_written_together(database: Database) -> None:
    trail = AuditTrail(database, now=await _fixed(database), states=StateChanges())
    recorded = [asyncio.create_task(trail.record(_denied(number))) for number in range(20)]
    await eventually(lambda: len(trail._waiting) == 20)
    running = asyncio.create_task(trail.run())
    await asyncio.gather(*recorded)
    running.cancel()
    await asyncio.wait((running,))
    async with database.connection() as connection:
        rows = await (
            await connection.execute("SELECT count(*), count(DISTINCT xmin::text) FROM audit_entries")
        ).fetchone()
    assert rows == (20, 1)


async def test_entries_that_are_too_old_are_deleted(database: Database) -> None:
    now = await database.now()
    for ago in (100, 1):
        trail = AuditTrail(database, now=lambda ago=ago: now - timedelta(days=ago), states=StateChanges())
        trail.note(_denied(ago))
        await trail.close()
    assert await _deleted(database, entries=100) == 1
    assert await _rows(database, "resource") == [("projects/p/topics/t1",)]


async def test_a_project_keeps_its_newest_entries_and_denials_displace_neither_changes_nor_those_of_other_projects(
    database: Database,
) -> None:
    changes, denials = [_changed(number) for number in range(4)], [_denied(number) for number in range(20)]
    theirs = Audited(method="GetTopic", resource="projects/other/topics/t", code="PERMISSION_DENIED")
    await _write(database, [theirs, *changes, *denials])
    assert await _deleted(database, entries=6) == 24 - 6
    resources = [f"projects/p/topics/t{number}" for number in (0, 1, 2, 3, 18, 19)]
    assert await _rows(database, "resource") == [(theirs.resource,), *((name,) for name in resources)]
    assert await _deleted(database, entries=6) == 0
    await _write(database, [_changed(4), _changed(5), _changed(6)])
    assert await _deleted(database, entries=6) == 3  # two denials, and the oldest change
    assert await _rows(database, "resource", "WHERE project = 'projects/p' ORDER BY number") == [
        (f"projects/p/topics/t{number}",) for number in range(1, 7)
    ]


async def test_denials_in_invented_projects_are_bounded_together_and_displace_no_change(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_entries, "MAX_OTHERS", 5)
    changes = [_changed(number) for number in range(7)]
    invented = [
        Audited(method="GetTopic", resource=f"projects/p{number}/topics/t", code="UNAUTHENTICATED")
        for number in range(30)
    ]
    await _write(database, [*changes, *invented])
    assert await _deleted(database, entries=100) == 25
    assert await _rows(database, "resource") == [(each.resource,) for each in [*changes, *invented[-5:]]]


async def _deleted(database: Database, *, entries: int) -> int:
    async with database.connection() as connection:
        return await delete_old_audit_entries(connection, now=await database.now(), days=90, entries=entries)


async def _write(database: Database, entries: Sequence[Audited]) -> None:
    now = await database.now()
    async with database.transaction() as connection:
        written = [AuditEntry(what, now, is_change=what.code == "OK") for what in entries]
        await insert_audit_entries(connection, entries=written)


async def _rows(database: Database, columns: str, rest: str = "") -> list[Any]:
    """Without `rest` in the order that they were written in, if columns are not aggregated."""
    rest = rest or ("" if "(" in columns else "ORDER BY number")
    async with database.connection() as connection:
        statement = sql.SQL(cast(LiteralString, f"SELECT {columns} FROM audit_entries {rest}"))
        return await (await connection.execute(statement)).fetchall()


@dataclass
class _Clock:
    now: datetime

    def __call__(self) -> datetime:
        return self.now


async def _fixed(database: Database) -> Callable[[], Any]:
    now = await database.now()
    return lambda: now
