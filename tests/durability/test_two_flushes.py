"""Two flushes of one shard in flight: whatever becomes of one, each caller is told the truth about its own.

The shard's row is locked by the test: the first flush waits for it in PostgreSQL, the second behind it.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from broker.core.log.messages import Appended, EncodedMessages, encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.publishing.publish_coalescer import MIN_FOLLOWING_MESSAGES, PublishCoalescer
from broker.db.driver.hot_connection import HotConnection
from broker.model.errors import Internal, NotFound, Unavailable
from broker.model.message import NewMessage
from tests.fixtures.broker import eventually
from tests.fixtures.core import make_core
from tests.fixtures.log import Log
from tests.interleavings.steps import execute, open_transaction, until_waiting

COUNT = MIN_FOLLOWING_MESSAGES


@dataclass
class Publisher:
    """A coalescer on the shard of a log."""

    log: Log
    coalescer: PublishCoalescer

    def start(self, batch: EncodedMessages) -> asyncio.Future[Appended]:
        return self.coalescer.publish(self.log.shard_id, batch, project="projects/p", topic="projects/p/topics/t")

    async def until_in_flight(self, count: int) -> HotConnection:
        """Returns the connection once so many flushes are in flight on it, the first waiting for the shard."""
        await until_waiting(self.log.database)
        queue = self.coalescer._queues[self.log.shard_id]
        await eventually(lambda: queue.connection is not None and len(queue.connection._in_flight) == count)
        assert queue.connection is not None
        return queue.connection

    @asynccontextmanager
    async def shard_locked(self) -> AsyncIterator[HotConnection]:
        async with open_transaction(self.log.database) as locking:
            await execute(locking, "UPDATE shards SET head = head")
            yield locking

    async def data(self) -> list[bytes]:
        """What is stored, in the order of the log, which has no gaps."""
        rows = await self.log.rows("SELECT seq, data FROM messages ORDER BY publish_time, seq")
        assert [seq for seq, _ in rows] == list(range(1, len(rows) + 1))
        assert await self.log.rows("SELECT head FROM shards") == [(len(rows),)]
        return [data for _, data in rows]


@pytest.fixture
async def publisher(log: Log) -> AsyncIterator[Publisher]:
    """With one message in the log, stored by the connection that is next but one in the pool (shard_locked takes
    one): its statements are prepared, or nothing could follow them.
    """
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    tasks = Tasks()
    publisher = Publisher(log, PublishCoalescer(make_core(log.database, clock, tasks)))
    async with log.database.hot():
        await publisher.start(batch("warm", 1))
    yield publisher
    await tasks.close()


def batch(name: str, count: int = COUNT) -> EncodedMessages:
    return encode_messages([NewMessage(data=data) for data in texts(name, count)])


def texts(name: str, count: int = COUNT) -> list[bytes]:
    return [f"{name}{number}".encode() for number in range(count)]


def refused(name: str, count: int = COUNT) -> EncodedMessages:
    """Messages that PostgreSQL refuses: their attributes claim an unknown version of jsonb."""
    return replace(batch(name, count), attributes=b"\0\0\0\x03\x02{}" * count)


async def _outcomes(tasks: Sequence[asyncio.Task[Appended]]) -> list[object]:
    return [r if isinstance(r, Appended) else type(r) for r in await asyncio.gather(*tasks, return_exceptions=True)]


async def test_two_flushes_stand_in_the_log_as_they_were_answered(publisher: Publisher) -> None:
    async with publisher.shard_locked():
        first = publisher.start(batch("a"))
        await publisher.until_in_flight(1)
        others = [publisher.start(batch("b")), publisher.start(batch("c"))]
        connection = await publisher.until_in_flight(2)
    assert [appended.first_seq for appended in await asyncio.gather(first, *others)] == [
        2,
        2 + COUNT,
        2 + 2 * COUNT,
    ]
    assert await publisher.data() == texts("warm", 1) + texts("a") + texts("b") + texts("c")
    await eventually(lambda: connection.users == 0)
    assert not connection.closed


async def test_fewer_messages_than_are_in_flight_wait_for_the_answer(publisher: Publisher) -> None:
    async with publisher.shard_locked():
        first = publisher.start(batch("a", 3 * COUNT))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b", 2 * COUNT))
        await asyncio.sleep(0)
        await publisher.until_in_flight(1)
        third = publisher.start(batch("c"))
        await publisher.until_in_flight(2)
    await asyncio.gather(first, second, third)
    expected = texts("a", 3 * COUNT) + texts("b", 2 * COUNT) + texts("c")
    assert await publisher.data() == texts("warm", 1) + expected


async def test_a_refused_message_in_the_first_flush_fails_its_own_request_only(publisher: Publisher) -> None:
    async with publisher.shard_locked():
        alone = publisher.start(batch("a", 1))
        await publisher.until_in_flight(1)
        first = [publisher.start(refused("b")), publisher.start(batch("c"))]
        await publisher.until_in_flight(2)
        later = publisher.start(batch("d", 2))
    outcomes = await _outcomes([alone, *first, later])
    assert outcomes[1] is Internal
    assert [type(outcome) for outcome in outcomes] == [Appended, type, Appended, Appended]
    assert sorted(await publisher.data()) == sorted(
        texts("warm", 1) + texts("a", 1) + texts("c") + texts("d", 2),
    )


async def test_the_second_flush_is_stored_when_the_first_is_refused(publisher: Publisher) -> None:
    async with publisher.shard_locked():
        first = publisher.start(refused("a"))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b"))
        connection = await publisher.until_in_flight(2)
    assert await _outcomes([first]) == [Internal]
    assert (await second).first_seq == 2
    assert await publisher.data() == texts("warm", 1) + texts("b")
    await eventually(lambda: connection.closed and connection.users == 0)


async def test_both_are_unknown_and_neither_is_sent_again_when_the_connection_is_lost(publisher: Publisher) -> None:
    async with publisher.shard_locked() as locking:
        first = publisher.start(batch("a"))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b"))
        connection = await publisher.until_in_flight(2)
        await execute(locking, f"SELECT pg_terminate_backend({connection._pgconn.backend_pid}, 10000)")
        assert await _outcomes([first, second]) == [Unavailable, Unavailable]
    assert await publisher.data() == texts("warm", 1)
    assert (await publisher.start(batch("c"))).first_seq == 2


async def test_both_are_told_that_the_topic_was_deleted(publisher: Publisher) -> None:
    async with publisher.shard_locked() as deleting:
        first = publisher.start(batch("a"))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b"))
        await publisher.until_in_flight(2)
        await execute(deleting, "UPDATE shards SET open = false")
    assert await _outcomes([first, second]) == [NotFound, NotFound]
    assert await publisher.data() == texts("warm", 1)


async def test_what_postgresql_undid_is_stored_once_perhaps_behind_the_other(publisher: Publisher) -> None:
    log = publisher.log
    await log.execute("CREATE SEQUENCE rows_seen")
    await log.execute(
        """
        CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('rows_seen') = 1 THEN
                RAISE EXCEPTION 'once' USING ERRCODE = 'serialization_failure';
            END IF;
            RETURN NEW;
        END $$
        """
    )
    await log.execute(
        "CREATE TRIGGER fail_once BEFORE INSERT ON message_batches FOR EACH ROW EXECUTE FUNCTION fail_once()"
    )
    async with publisher.shard_locked():
        first = publisher.start(batch("a"))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b"))
        await publisher.until_in_flight(2)
    stored = {(await first).first_seq: texts("a"), (await second).first_seq: texts("b")}
    assert sorted(stored) == [2, 2 + COUNT]
    assert await publisher.data() == texts("warm", 1) + stored[2] + stored[2 + COUNT]


async def test_both_are_stored_when_a_partition_was_missing(publisher: Publisher) -> None:
    async with publisher.shard_locked() as locking:
        first = publisher.start(batch("a"))
        await publisher.until_in_flight(1)
        second = publisher.start(batch("b"))
        await publisher.until_in_flight(2)
        # The flushes meet a publish time that the clock has reached and the janitor has not.
        await execute(locking, "UPDATE shards SET last_publish_time = last_publish_time + interval '1 hour'")
    stored = [await first, await second]
    assert sorted(appended.first_seq for appended in stored) == [2, 2 + COUNT]
    assert len(await publisher.data()) == 1 + 2 * COUNT
