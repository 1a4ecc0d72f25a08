"""The rules of the log under concurrency (docs/architecture.md)."""

import asyncio
from datetime import timedelta

import pytest
from psycopg import sql

from broker.core.log import messages, partitions
from broker.core.log.partitions import drop_partition, list_partitions, make_partitions_ahead
from broker.db.driver.database import Connection
from broker.db.driver.statements import hot_statement
from tests.fixtures.broker import eventually
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import changed, execute, open_transaction, until_waiting


async def a_reader_sees_no_gap_while_a_publish_is_on_its_way(log: Log) -> None:
    async with open_transaction(log.database) as slow:
        await log.publish("first", connection=slow)
        fast = asyncio.create_task(log.publish("second"))
        await until_waiting_or_done(log, fast)
        seen = await log.pull_texts(now=log.start + SECOND)
    await fast
    assert seen + await log.pull_texts(now=log.start + SECOND) == ["first", "second"]


async def until_waiting_or_done(log: Log, task: asyncio.Task[None]) -> None:
    waiting = asyncio.create_task(until_waiting(log.database))
    await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_reader_sees_no_gap_while_a_publish_is_on_its_way(log: Log) -> None:
    await a_reader_sees_no_gap_while_a_publish_is_on_its_way(log)


@pytest.mark.one_server(
    "a sequence is its server's; where shards lie on nodes the broken rule cannot be written so"
)
async def test_it_would_with_a_database_sequence(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sequence's numbers are given out at once and commit in any order: the reader passes the late one."""
    await log.execute("CREATE SEQUENCE heads")
    take = hot_statement(
        "take",
        """
-- parameters: shard_id int8, count int8, now timestamptz
SELECT nextval('heads') * %(count)s, greatest(%(now)s, now()) FROM shards WHERE shard_id = %(shard_id)s
""",
    )
    monkeypatch.setattr(messages, "_TAKE_SEQUENCES", take)
    append = changed(messages._APPEND_MESSAGES, "s.head", "currval('heads')")
    monkeypatch.setattr(messages, "_APPEND_MESSAGES", append)
    with pytest.raises(AssertionError):
        await a_reader_sees_no_gap_while_a_publish_is_on_its_way(log)


async def test_a_topic_that_is_deleted_while_a_publish_waits_takes_no_message(log: Log) -> None:
    async with open_transaction(log.database) as deleting:
        await execute(deleting, "UPDATE shards SET open = false")
        publish = asyncio.create_task(log.publish("late"))
        await until_waiting(log.database)
    with pytest.raises(AssertionError):
        await publish
    assert await log.rows("SELECT head FROM shards") == [(0,)]


async def publishes_and_claims_go_on_while_partitions_are_made(log: Log) -> None:
    async with open_transaction(log.database) as publishing:
        await log.publish("a", connection=publishing)
        async with open_transaction(log.database) as claiming:
            await execute(claiming, "SELECT FROM messages")
            async with log.database.connection() as janitor:
                await janitor.execute(b"SET lock_timeout = '300ms'")
                assert await make_partitions_ahead(janitor, now=log.start + timedelta(hours=1)) > 0
                await janitor.execute(b"RESET lock_timeout")


async def test_publishes_and_claims_go_on_while_partitions_are_made(log: Log) -> None:
    await publishes_and_claims_go_on_while_partitions_are_made(log)


async def test_they_would_stall_with_create_table_partition_of(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    async def make(connection: Connection, of: partitions.Partitioned, start: object, end: object) -> None:
        await connection.execute(
            sql.SQL("CREATE TABLE made PARTITION OF {} FOR VALUES FROM ({}) TO ({})").format(of.name, start, end),
            prepare=False,
        )

    monkeypatch.setattr(partitions, "_make", make)
    with pytest.raises(Exception, match="busy"):
        await publishes_and_claims_go_on_while_partitions_are_made(log)


async def test_publishes_go_on_while_a_partition_is_dropped(log: Log) -> None:
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=log.start + timedelta(hours=1))
        oldest = (await list_partitions(connection))[0]
    later = log.start + timedelta(hours=1)
    async with open_transaction(log.database) as long_reader:
        await execute(long_reader, "SELECT FROM messages")  # holds the parent: a plain DROP would queue behind it
        async with log.database.connection() as janitor:
            dropping = asyncio.create_task(drop_partition(janitor, oldest))
            await _until_detaching_or_done(log, dropping)
            await asyncio.wait_for(log.publish("meanwhile", now=later), 10)
            assert await log.pull_texts(now=later) == ["meanwhile"]
            await asyncio.wait((dropping,), timeout=0)
            await execute(long_reader, "COMMIT")
            await execute(long_reader, "BEGIN")
            await dropping
    async with log.database.connection() as connection:
        await eventually(lambda: _dropped(connection, oldest.name))


async def _until_detaching_or_done(log: Log, dropping: asyncio.Task[bool]) -> None:
    async def detaching() -> bool:
        rows = await log.rows("SELECT FROM pg_inherits WHERE inhdetachpending")
        return bool(rows) or dropping.done()

    await eventually(detaching)


async def _dropped(connection: Connection, name: str) -> bool:
    for partition in await list_partitions(connection):
        if partition.name == name:
            await drop_partition(connection, partition)
    return name not in {partition.name for partition in await list_partitions(connection)}
