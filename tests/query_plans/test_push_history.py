"""Counts of push requests, and changes of circuit breakers, are written, listed and deleted by index."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import event, text

from broker.core.pushing import push_history_rows as store
from broker.db.driver import statements
from broker.model.push_history import ATTEMPTS_KEPT, PushAttemptPage, PushAttempts
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of

START = datetime(2026, 3, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
async def crowded(log: Log) -> Log:
    """A thousand subscriptions with two hundred minutes each."""
    await log.execute(
        "INSERT INTO push_attempts SELECT s, timestamptz '2026-03-01Z' + n * interval '1 minute', '200', true, 1,"
        " interval '1 s', '1' FROM generate_series(0, 199) AS n, generate_series(1, 1000) AS s"
    )
    await log.execute(
        "INSERT INTO breaker_changes (subscription_id, changed_at, state, consecutive_failures, reason)"
        " SELECT s, now(), 'open', 5, '' FROM generate_series(1, 1000) AS s, generate_series(1, 50)"
    )
    for table in ("push_attempts", "breaker_changes"):
        await log.execute(f"ANALYZE {table}")
    return log


async def _plans(log: Log, table: str, call: Any) -> list[str]:
    """The plans of the queries about a table that a function of the store sends."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, parameters: Any, *_: object) -> None:
        sent.append((statement, parameters))

    engine = log.database._engine.sync_engine
    async with log.database.transaction() as connection:
        event.listen(engine, "before_cursor_execute", note)
        try:
            await call(connection)
        finally:
            event.remove(engine, "before_cursor_execute", note)
        plans = []
        for statement, parameters in [each for each in sent if table in each[0]]:
            rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
            plans.append("\n".join(row[0] for row in rows))
        await connection.execute(text("SELECT 1"))
    return plans


@pytest.mark.parametrize(
    "page",
    [
        PushAttemptPage(size=50),
        PushAttemptPage(size=50, since=START + 100 * MINUTE, outcome="DELIVERED"),
        PushAttemptPage(size=50, after=(START + 100 * MINUTE, "200")),
    ],
)
async def test_a_page_of_attempts_reads_those_of_its_subscription(crowded: Log, page: PushAttemptPage) -> None:
    async def call(connection: Any) -> None:
        assert len(await store.list_push_attempts(connection, subscription_id=7, page=page)) == 51

    [plan] = await _plans(crowded, "push_attempts", call)
    assert "push_attempts_pkey" in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_attempts_are_added_to_their_minutes_by_key(crowded: Log) -> None:
    attempts = PushAttempts(
        subscription_id=crowded.subscription.subscription_id,
        minute=START,
        status="200",
        delivered=True,
        requests=1,
        latency=timedelta(seconds=1),
        last_message_id="1",
    )

    async def call(connection: Any) -> None:
        await store.record_push_attempts(connection, attempts=[attempts])

    [plan] = await _plans(crowded, "push_attempts", call)
    assert "Conflict Arbiter Indexes: push_attempts_pkey" in plan, plan
    assert "Seq Scan on push_attempts" not in plan, plan


async def test_changes_of_breakers_are_listed_and_trimmed_by_index(crowded: Log) -> None:
    async def call(connection: Any) -> None:
        assert len(await store.list_breaker_changes(connection, subscription_id=7)) == 50

    plans = await _plans(crowded, "breaker_changes", call)
    async with crowded.database.connection() as connection:
        trimmed = {"subscription_ids": [7, 8], "kept": 50}
        plans.append(await plan_of(connection, statements.load("trim_breaker_changes"), trimmed))
    assert len(plans) == 2
    for plan in plans:
        assert "breaker_changes_pkey" in plan, plan
        assert "Seq Scan on breaker_changes" not in plan, plan


async def test_old_attempts_are_deleted_by_index(crowded: Log) -> None:
    before = START + timedelta(minutes=5)
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, store._DELETE_OLD, {"before": before})
        assert "Seq Scan" not in plan, plan
        await store.delete_old_push_attempts(connection, now=before + ATTEMPTS_KEPT)
        [[rest]] = await (await connection.execute("SELECT count(*) FROM push_attempts")).fetchall()
    assert rest == 1_000 * 195
