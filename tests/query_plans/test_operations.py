"""What runs operations costs the same however many have ended: they are kept for days (G1)."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.dialects import postgresql

from broker.db.driver import statements
from broker.features.import_export import import_rows as imports
from broker.features.metrics import rows as figures
from broker.features.operations import rows as store
from broker.features.operations.operation import Operation
from broker.model.operation_verb import Verb
from broker.model.page import Page
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of

NOW = datetime(2026, 11, 23, tzinfo=UTC)
OURS = "projects/p7/operations/00000007"


@pytest.fixture
async def crowded(log: Log) -> Log:
    """Twenty thousand, of which a hundred are under way."""
    await log.execute(
        "INSERT INTO operations (name, project, verb, target, started_by, request, progress, counts, done, total,"
        " is_estimate, created_at, updated_at, next_step_at, ended_at)"
        " SELECT 'projects/p' || n % 100 || '/operations/' || lpad(n::text, 8, '0'), 'projects/p' || n % 100,"
        " 'copy', 't', '', '{}', '{}', '{}', 0, 0, false, now(), now(), now(), CASE WHEN n > 100 THEN now() END"
        " FROM generate_series(0, 20000) AS n"
    )
    await log.execute("ANALYZE operations")
    return log


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("lock_operation", "operations_next_step_idx"),
        ("read_next_step", "operations_next_step_idx"),
        ("write_operation", "operations_pkey"),
    ],
)
async def test_a_step_finds_its_operation_by_index(crowded: Log, name: str, index: str) -> None:
    values = dict.fromkeys(("done", "total"), 0) | dict.fromkeys(("now", "next_step_at"), NOW)
    parameters = values | {"name": OURS, "progress": "{}", "counts": "{}", "ended": False, "verbs": ["copy"]}
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, statements.load(name), parameters)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan
    assert name == "lock_operation" or "Sort" not in plan, plan  # it sorts those that are under way


async def test_old_ones_are_deleted_by_index(crowded: Log) -> None:
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, store._DELETE_OLD, {"before": NOW})
    assert "operations_ended_idx" in plan, plan


async def test_calls_read_those_of_a_project_by_index(crowded: Log) -> None:
    """Also what is not written as SQL: explained as it was sent."""
    operation = Operation(
        name=OURS,
        project="projects/p7",
        verb=Verb.COPY,
        target="t",
        request={},
        created_at=NOW,
        updated_at=NOW,
        next_step_at=NOW,
    )
    page = Page(size=10, after="")
    calls: dict[str, Callable[[Any], Any]] = {
        "find": lambda connection: store.find_operation(connection, name=operation.name),
        "list": lambda connection: store.list_operations(connection, project=operation.project, page=page),
        "end": lambda connection: store.end_operation(connection, name=OURS, code="", message="", now=NOW),
        "put off": lambda connection: store.put_off(connection, name=OURS, until=NOW),
        "delete": lambda connection: store.delete_operation(connection, name=OURS),
    }
    for what, call in calls.items():
        plan = await _plan_of_call(crowded, call)
        assert "operations_pkey" in plan, (what, plan)
        assert "Seq Scan" not in plan, (what, plan)
    plan = await _plan_of_call(crowded, lambda c: store.count_running(c, project=operation.project))
    assert "operations_next_step_idx" in plan, plan
    plan = await _plan_of_call(crowded, figures.count_operations)
    assert "operations_next_step_idx" in plan, plan  # all that are under way, of any project: ten each at the most


async def _plan_of_call(log: Log, call: Callable[[Any], Any]) -> str:
    sent: list[Any] = []

    def remember(_connection: Any, statement: Any, *_: Any) -> None:
        sent.append(statement)

    async with log.database.transaction() as connection:
        engine = connection.sync_connection.engine
        event.listen(engine, "before_execute", remember)
        try:
            await call(connection)
        finally:
            event.remove(engine, "before_execute", remember)
        compiled = sent[-1].compile(dialect=postgresql.dialect(), compile_kwargs={"literal_binds": True})
        rows = await connection.exec_driver_sql(f"EXPLAIN {str(compiled).replace('%', '%%')}")
        plan = "\n".join(row[0] for row in rows)
        await connection.rollback()
    return plan


async def test_parts_of_imports_are_found_and_forgotten_by_index(log: Log) -> None:
    await log.execute(
        "INSERT INTO imported_parts SELECT n % 50, 'i' || n % 100, n, '', 1, now() - n * interval '1 second'"
        " FROM generate_series(1, 20000) AS n"
    )
    await log.execute("ANALYZE imported_parts")
    part = {"topic_id": 7, "import_id": "i7", "part": 7}
    async with log.database.connection() as connection:
        found = await plan_of(connection, statements.load("read_part"), part)
        forgotten = await plan_of(connection, imports._DELETE_OLD, {"before": log.start - timedelta(hours=5)})
    assert "imported_parts_pkey" in found, found
    assert "imported_parts_time_idx" in forgotten, forgotten


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("lock_due_schedule", "schedules_project_idx"),
        ("find_due_projects", "schedules_next_idx"),
        ("read_next_tick", "schedules_next_idx"),
    ],
)
async def test_a_tick_finds_its_schedule_by_index(log: Log, name: str, index: str) -> None:
    """Of ten thousand in ten projects, half of them paused."""
    await log.execute(
        "INSERT INTO schedules SELECT 'projects/p' || n % 10 || '/schedules/' || n, '{}', now(),"
        " CASE WHEN n % 2 = 0 THEN now() + n * interval '1 second' END, n % 2 = 1, 0, NULL, '', now(), now()"
        " FROM generate_series(1, 10000) AS n"
    )
    await log.execute("ANALYZE schedules")
    parameters = {
        "now": NOW,
        "but": ["projects/p2/schedules/2"],
        "project": "projects/p4",
        "known": [],
        "most": 1_000,
    }
    async with log.database.connection() as connection:
        plan = await plan_of(connection, statements.load(name), parameters)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan
    if name != "find_due_projects":  # which sorts the few projects that it found
        assert "Sort" not in plan, plan
