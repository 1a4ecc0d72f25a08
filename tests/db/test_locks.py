"""Locks between brokers: no other role of the database can take them, and holding one costs nothing."""

import asyncio
from contextlib import AsyncExitStack

import psycopg
import pytest

from broker.core.log.partitions import make_partitions_ahead
from broker.core.process.database_clock import DatabaseClock
from broker.core.retention.retention import delete_unwanted, drop_partitions_behind
from broker.core.retention.retention_janitor import RetentionJanitor
from broker.db.driver.database import Database
from broker.db.driver.locks import CLEANING_UP, DROPPING, LOCKS, REPORTING_EVENTS, held, lock_name, try_lock
from broker.features.declarations.declaring import turn_to_declare
from broker.features.operations.rows import count_running
from tests.features.delayed.test_scheduled_messages import publish_due, schedule
from tests.fixtures.application import Application
from tests.fixtures.core import make_core
from tests.fixtures.log import SECOND, Log
from tests.fixtures.registered import CLEAN_UPS
from tests.interleavings.steps import until_waiting

_VERSION_TABLE = "alembic_version"

# Every advisory lock that brokers have ever taken in the schema `broker`; its role can read the keys in pg_locks.
_ADVISORY = """
    SELECT pg_advisory_lock(key)
    FROM generate_series(4711000, 4711010) AS base (n)
    CROSS JOIN LATERAL (
        SELECT n
        UNION ALL SELECT hashtextextended('broker', n)
        UNION ALL SELECT hashtextextended('broker operations projects/p', n)
        UNION ALL SELECT hashtextextended('broker events', n)
        UNION ALL SELECT hashtextextended('broker/' || shard_id, n) FROM generate_series(1, 100) AS shard (shard_id)
    ) AS keys (key)
"""


@pytest.mark.parametrize("table", [*LOCKS, "locked_names", _VERSION_TABLE, "notification_keys"])
@pytest.mark.parametrize("mode", ["ACCESS SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "EXCLUSIVE"])
def test_a_granted_role_cannot_lock_a_table_of_the_broker(application: Application, table: str, mode: str) -> None:
    with application.session() as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(f"LOCK TABLE broker.{table} IN {mode} MODE NOWAIT")


@pytest.mark.parametrize("call", ["try_lock('lock_cleanup')", "lock_name('projects/p/operations')"])
def test_a_granted_role_cannot_call_what_takes_locks(application: Application, call: str) -> None:
    with application.session() as session, pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute(f"SELECT broker.{call}")


async def test_advisory_locks_of_a_granted_role_stop_nothing(log: Log, application: Application) -> None:
    await schedule(log, ("later", 1))
    later = log.start + 3600 * SECOND
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    with application.session(autocommit=True) as session:
        session.execute(_ADVISORY)
        async with asyncio.timeout(25), log.database.connection() as connection:
            assert await make_partitions_ahead(connection, now=later) > 0
            assert await publish_due(log, later) == 1
            await delete_unwanted(connection, database=log.database, now=later)
            await drop_partitions_behind(connection, database=log.database, now=later)
            await RetentionJanitor(make_core(log.database, clock), CLEAN_UPS).run_once()
            async with turn_to_declare(log.database), log.database.transaction() as resources:
                assert await count_running(resources, project="projects/p") == 0


async def test_a_lock_that_is_held_has_neither_a_snapshot_nor_a_transaction_id(database: Database) -> None:
    """Either would keep vacuum from everything that is updated meanwhile."""
    async with AsyncExitStack() as stack:
        for lock, wait in ((DROPPING, True), (CLEANING_UP, False)):
            await stack.enter_async_context(held(database, lock, wait=wait))
        connection = await stack.enter_async_context(database.connection())
        cursor = await connection.execute(
            "SELECT backend_xid, backend_xmin FROM pg_stat_activity"
            " WHERE datname = current_database() AND state = 'idle in transaction'"
        )
        assert await cursor.fetchall() == [(None, None)] * 2


async def test_a_lock_that_was_lost_with_its_session_is_noticed(database: Database) -> None:
    async with held(database, DROPPING, wait=True) as lock:
        assert lock is not None
        await lock.check()
        async with database.connection() as connection:
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            )
        with pytest.raises(psycopg.Error):
            await lock.check()


async def test_of_two_that_lock_a_name_one_waits_and_no_row_is_left(database: Database) -> None:
    async def locked() -> None:
        async with database.transaction() as connection:
            await lock_name(connection, "projects/p/topics")

    async with database.transaction() as first:
        await lock_name(first, "projects/p/topics")
        await lock_name(first, "projects/p/topics")
        async with database.transaction() as other:
            await lock_name(other, "projects/q/topics")
        second = asyncio.create_task(locked())
        await until_waiting(database)
    await second
    async with database.connection() as connection:
        assert await (await connection.execute("SELECT * FROM locked_names")).fetchall() == []


async def test_a_lock_that_is_not_waited_for_fails_no_transaction(database: Database) -> None:
    async with held(database, REPORTING_EVENTS, wait=True), database.connection() as other, other.transaction():
        assert not await try_lock(other, REPORTING_EVENTS)
        assert await try_lock(other, CLEANING_UP)
