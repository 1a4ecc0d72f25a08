"""Several batches in flight on one connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import uvloop

from broker.core.log import messages
from broker.db.driver.hot_connection import BULKY_BYTES, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from tests.fixtures.broker import PATIENCE_SECONDS
from tests.fixtures.log import Log
from tests.interleavings.steps import execute, open_transaction, until_waiting

_LOCK = Statement(b"lock", b"UPDATE shards SET head = head")
_DIVIDE = Statement(b"divide", b"SELECT 1 / (random() * 0)::int")
_SLEEP = Statement(b"sleep", b"SELECT pg_sleep(60)")
_PID = Statement(b"pid", b"SELECT pg_backend_pid()")


@asynccontextmanager
async def _warm(log: Log) -> AsyncIterator[HotConnection]:
    """A connection that has prepared the statements of these tests."""
    async with log.database.hot() as connection:
        await log.publish("warm", connection=connection)
        await connection.run((_LOCK, {}))
        await connection.run((_PID, {}))
        yield connection


async def _sent_behind(log: Log, connection: HotConnection, *data: str) -> list[asyncio.Task[None]]:
    """A publish per text, one behind the other, none waiting for the answer to the one before."""
    tasks = [asyncio.create_task(log.publish(text, connection=connection)) for text in data]
    await asyncio.sleep(0)  # each has run to its wait
    return tasks


def _wait_until(connection: psycopg.Connection[Any], condition: str, pid: int) -> None:
    asking = f"SELECT {condition} FROM pg_stat_activity WHERE pid = {pid}"
    while connection.execute(asking).fetchone() != (True,):
        pass


async def _stored(log: Log) -> list[tuple[Any, ...]]:
    return await log.rows("SELECT seq, data FROM messages ORDER BY seq")


async def test_batches_are_run_and_answered_in_the_order_in_which_they_were_sent(log: Log) -> None:
    async with _warm(log) as connection:
        async with open_transaction(log.database) as other:
            await execute(other, "UPDATE shards SET head = head")
            tasks = await _sent_behind(log, connection, "a", "b", "c")
            await until_waiting(log.database)
        await asyncio.gather(*tasks)
        assert not connection.failed
    assert await _stored(log) == [(1, b"warm"), (2, b"a"), (3, b"b"), (4, b"c")]


@pytest.mark.one_server("on nodes a publish that asks for the head is two batches")
async def test_an_error_in_one_batch_leaves_the_next_one_alone(log: Log) -> None:
    async with _warm(log) as connection:
        failing = asyncio.create_task(connection.run((_LOCK, {}), (_DIVIDE, {})))
        [publish] = await _sent_behind(log, connection, "b")
        with pytest.raises(psycopg.errors.DivisionByZero):
            await failing
        await publish
        assert connection.failed
        assert connection.closed
    assert await _stored(log) == [(1, b"warm"), (2, b"b")]
    async with log.database.hot() as another:
        assert another is not connection


async def test_a_transaction_that_nobody_began_is_not_committed(log: Log) -> None:
    """What should have been one would have been several."""
    async with log.database.hot() as connection:
        await connection.run((BEGIN, {}), (_PID, {}))
        await connection.run((_PID, {}), (COMMIT, {}))
        with pytest.raises(RuntimeError, match="lock is to be committed, and no transaction was begun"):
            await connection.run((_LOCK, {}), (COMMIT, {}))
        assert connection.closed


@pytest.mark.one_server("on nodes a publish that asks for the head is two batches")
async def test_a_connection_that_failed_is_closed_only_when_what_is_in_flight_is_answered(log: Log) -> None:
    async with _warm(log) as connection:
        async with open_transaction(log.database) as other:
            await execute(other, "UPDATE shards SET head = head")
            failing = asyncio.create_task(connection.run((_PID, {}), (_DIVIDE, {})))
            [publish] = await _sent_behind(log, connection, "b")
            with pytest.raises(psycopg.errors.DivisionByZero):
                await failing
            await until_waiting(log.database)
            assert connection.failed
            assert not connection.closed
        await publish
        assert connection.closed
    assert await _stored(log) == [(1, b"warm"), (2, b"b")]


async def test_a_connection_that_is_lost_fails_every_batch_in_flight(log: Log) -> None:
    async with _warm(log) as connection:
        [[(pid,)]] = await connection.run((_PID, {}))
        async with open_transaction(log.database) as other:
            await execute(other, "UPDATE shards SET head = head")
            tasks = await _sent_behind(log, connection, "a", "b")
            await until_waiting(log.database)
            await execute(other, f"SELECT pg_terminate_backend({pid}, 10000)")
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(outcome, psycopg.OperationalError) for outcome in outcomes] == [True, True]
        assert connection.closed
    assert await _stored(log) == [(1, b"warm")]


def test_so_does_one_whose_server_ends_without_having_read_all_of_them(database_url: str) -> None:
    """That leaves an error on the socket, for which uvloop, which the broker runs on, calls a reader only once."""

    async def lose() -> None:
        connection = HotConnection(await psycopg.AsyncConnection.connect(database_url, autocommit=True))
        [[(pid,)]] = await connection.run((_PID, {}))
        asleep = asyncio.create_task(connection.run((_SLEEP, {})))
        await asyncio.sleep(0)
        with psycopg.connect(
            database_url, autocommit=True
        ) as other:  # this loop is busy until the server has ended
            _wait_until(other, "wait_event = 'PgSleep'", pid)
            unread = asyncio.create_task(connection.run((_PID, {})))
            await asyncio.sleep(0)
            other.execute("SELECT pg_terminate_backend(%s::int, 10000)", (pid,))
        async with asyncio.timeout(PATIENCE_SECONDS):
            outcomes = await asyncio.gather(asleep, unread, return_exceptions=True)
        assert all(isinstance(outcome, psycopg.OperationalError) for outcome in outcomes)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(lose())


async def test_a_task_that_is_cancelled_takes_the_batches_behind_it_along(log: Log) -> None:
    """Its batch may still commit; only the end of the connection bounds that."""
    async with _warm(log) as connection:
        async with open_transaction(log.database) as other:
            await execute(other, "UPDATE shards SET head = head")
            first, second = await _sent_behind(log, connection, "a", "b")
            await until_waiting(log.database)
            first.cancel()
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert isinstance(outcomes[1], psycopg.OperationalError)
        assert connection.closed


async def test_batches_larger_than_the_socket_takes_are_sent_one_behind_the_other(log: Log) -> None:
    size = 8_000_000
    async with _warm(log) as connection:
        await asyncio.gather(*await _sent_behind(log, connection, "a" * size, "b", "c" * size))
    rows = await log.rows("SELECT seq, length(data), substr(data, 1, 1) FROM messages ORDER BY seq")
    assert rows == [(1, 4, b"w"), (2, size, b"a"), (3, 1, b"b"), (4, size, b"c")]


@pytest.mark.one_server("on nodes a publish that asks for the head is two batches")
async def test_nothing_follows_a_batch_that_prepares_its_statements(log: Log) -> None:
    async with log.database.hot() as connection:
        assert connection.can_be_followed
        [first] = await _sent_behind(log, connection, "a")
        assert not connection.can_be_followed
        await first
        [second] = await _sent_behind(log, connection, "b")
        assert connection.can_be_followed
        await second
        failing = asyncio.create_task(connection.run((_DIVIDE, {})))
        with pytest.raises(psycopg.errors.DivisionByZero):
            await failing
        assert not connection.can_be_followed
    assert messages._APPEND_MESSAGES in connection._prepared


async def test_the_last_of_several_tasks_gives_a_connection_back(log: Log) -> None:
    async with log.database.hot() as connection:
        async with log.database.hot(connection) as followed:
            assert followed is connection
        async with log.database.hot() as another:  # it was not given back while it is still held
            assert another is not connection
    async with log.database.hot() as again:
        assert again is connection


async def test_a_connection_that_has_become_large_is_not_used_again(log: Log) -> None:
    """libpq never gives back the buffers that a large message went through."""
    body = "a" * (BULKY_BYTES + 1)
    async with log.database.hot() as reading:  # by another connection than that which published
        async with log.database.hot() as connection:
            await log.publish(body, connection=connection)
            assert connection.bulky
            await log.publish("small", connection=connection)  # while it is held it is as good as any
        assert connection.closed
        assert not reading.bulky
        [delivery] = await log.pull(1, connection=reading)
        assert delivery.messages[0].size > BULKY_BYTES
        assert reading.bulky
    assert reading.closed


async def test_one_that_has_not_is_kept(log: Log) -> None:
    async with log.database.hot() as connection:
        await log.publish(*["a" * 1000] * 1000, connection=connection)
        await log.pull(connection=connection)
    async with log.database.hot() as again:
        assert again is connection
