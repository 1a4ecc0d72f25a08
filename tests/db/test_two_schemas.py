"""Two brokers in one database, each in a schema of its own, neither wake each other nor wait for each other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime

import pytest

from broker.core.log.partitions import IDENTITIES, MESSAGES, RECORDS, list_partitions, make_partitions_ahead
from broker.core.retention.retention import cleaning_up
from broker.db.driver.database import Database
from broker.db.driver.locks import CLEANING_UP
from broker.db.driver.notification_seal import read_seal
from broker.db.driver.notifications import ResourceChanged, listen, notify_resources_changed
from tests.fixtures.broker import PATIENCE_SECONDS


@pytest.fixture
async def three(database_url: str) -> AsyncIterator[list[Database]]:
    """In the default schema, in one with no more than this file needs, and again in the default one."""
    async with AsyncExitStack() as stack:
        databases = [
            Database(database_url, schema=schema, pool_size=2) for schema in ("broker", "second", "broker")
        ]
        for database in databases:
            stack.push_async_callback(database.close)
        async with databases[0].connection() as connection:
            await connection.execute(b"CREATE SCHEMA second")
            for function in ("notify_brokers", "try_lock"):
                found = await connection.execute("SELECT pg_get_functiondef(%s::regproc)", [f"broker.{function}"])
                [(definition,)] = await found.fetchall()
                await connection.execute(definition.replace("broker.", "second."))
            for table in (CLEANING_UP, "notification_keys"):
                await connection.execute(f"CREATE TABLE second.{table} AS TABLE broker.{table}")
        yield databases


async def test_a_notification_is_heard_in_its_own_schema_alone(three: list[Database]) -> None:
    first, second, _ = three
    listening = [listen(database) for database in three]
    assert [await anext(announcements) for announcements in listening] == [None] * 3
    for database, name in ((first, "of the first"), (second, "of the second")):
        async with database.connection() as connection:
            seal = await read_seal(connection)
            await notify_resources_changed(connection, schema=database.schema, seal=seal, names=[name])
    async with asyncio.timeout(PATIENCE_SECONDS):
        heard = [await anext(announcements) for announcements in listening]
    assert heard == [ResourceChanged(f"of the {which}") for which in ("first", "second", "first")]
    for announcements in listening:
        await announcements.aclose()


async def test_a_cleanup_in_one_schema_does_not_delay_one_in_another(three: list[Database]) -> None:
    async with AsyncExitStack() as stack:
        turns = [await stack.enter_async_context(cleaning_up(database)) for database in three]
        assert turns == [True, True, False]


async def test_partitions_are_made_in_the_schema_of_the_session(database: Database, now: datetime) -> None:
    async with database.connection() as connection:
        await make_partitions_ahead(connection, now=now)
        names = [
            each.name for of in (MESSAGES, IDENTITIES, RECORDS) for each in await list_partitions(connection, of)
        ]
        cursor = await connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'broker'::regnamespace AND relispartition"
            " AND relkind = 'r' ORDER BY relname"
        )
        assert [name for (name,) in await cursor.fetchall()] == sorted(names)
