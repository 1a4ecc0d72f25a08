"""Who reads from a subscription, what each has out, and how fast it acks (F3)."""

from datetime import timedelta

import pytest

from broker.core.process.database_clock import DatabaseClock
from broker.core.pulling.reader import SHOWN_FOR, Reader
from broker.core.pulling.reader_rows import list_readers
from broker.core.pulling.readers import FORGOTTEN_SECONDS, PASS_SECONDS, Readers, Reading
from broker.features.inspect.consumer_service import ConsumerService
from broker.model.ack_id import attempt_name
from broker.model.delivery import Delivery
from broker.model.errors import NotFound
from tests.fixtures.log import Log


class Read:
    """One process's readers of the log's subscription; its clock is the test's."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.ticks = 0.0
        self.clock = DatabaseClock(log.database, ticks=lambda: self.ticks)
        self.readers = self.process()

    def process(self) -> Readers:
        return Readers(self.log.database, self.clock, ticks=lambda: self.ticks)

    def stream(self, client_id: str) -> Reading:
        subscription_id = self.log.subscription.subscription_id
        return self.readers.opens(subscription_id, client_id=client_id, principal="user:a@b.c", address="10.0.0.1")

    async def hand_out(self, reading: Reading, count: int = 1) -> Delivery:
        await self.log.publish(*["x"] * count, now=self.clock.now())
        [delivery] = await self.log.pull(count, now=self.clock.now())
        self.readers.handed_out(reading, [delivery])
        return delivery

    def ack(self, delivery: Delivery, *ordinals: int) -> None:
        name = attempt_name(self.log.subscription.subscription_id, delivery)
        self.readers.acked([{name: set(ordinals or range(len(delivery.messages)))}])

    async def shown(self) -> list[Reader]:
        await self.readers.run_once()
        service = ConsumerService(self.log.database, self.clock)
        found, total, _ = await service.list_consumers(self.log.subscription.name, page_size=100)
        assert total == len(found)
        return list(found)


@pytest.fixture
async def read(log: Log) -> Read:
    read = Read(log)
    await read.clock.synchronise()
    return read


async def test_the_slow_one_of_ten_is_first(read: Read) -> None:
    streams = [read.stream(f"client-{number}") for number in range(10)]
    handed_out = [await read.hand_out(stream, 2) for stream in streams]
    read.ticks = 1.0
    for number, delivery in enumerate(handed_out):
        if number != 3:
            read.ack(delivery)
    read.ticks = 4.0
    read.ack(handed_out[3], 0)
    slow, *others = await read.shown()
    assert (slow.client_id, slow.principal, slow.address) == ("client-3", "user:a@b.c", "10.0.0.1")
    assert (slow.kind, slow.outstanding, slow.ack_p50) == ("STREAMING_PULL", 1, 4.0)
    assert slow.oldest_since is not None
    assert slow.seen_at - slow.oldest_since == timedelta(seconds=4)
    assert slow.acks_per_second == 1 / 4
    assert {(o.outstanding, o.ack_p50, o.ack_p99, o.acks_per_second) for o in others} == {(0, 1.0, 1.0, 2 / 4)}


async def test_what_is_settled_elsewhere_is_out_no_more(read: Read) -> None:
    stream = read.stream("c")
    acked, nacked = await read.hand_out(stream, 3), await read.hand_out(stream)
    await read.log.acknowledge(acked, [0])  # by another process
    await read.log.nack(nacked)
    read.ticks = PASS_SECONDS
    [only] = await read.shown()
    assert only.outstanding == 2
    read.ticks = 20.0  # past the ack deadline
    [only] = await read.shown()
    assert (only.outstanding, only.oldest_since) == (0, None)


async def test_what_is_nacked_is_out_no_more_at_once(read: Read) -> None:
    stream = read.stream("c")
    for _ in range(3):
        delivery = await read.hand_out(stream, 2)
        name = attempt_name(read.log.subscription.subscription_id, delivery)
        read.readers.nacked([{name: {0, 1}}])
    kept = attempt_name(read.log.subscription.subscription_id, await read.hand_out(stream, 2))
    read.readers.nacked([{kept: {1}}])
    [only] = await read.shown()
    assert only.outstanding == 1


async def test_pulls_of_one_client_are_one_reader_until_it_has_not_come_for_a_minute(read: Read) -> None:
    subscription_id = read.log.subscription.subscription_id
    for _ in range(3):
        read.readers.pulls(subscription_id, "", "10.0.0.1")
    read.readers.pulls(subscription_id, "", "10.0.0.2")
    assert {(reader.kind, reader.address) for reader in await read.shown()} == {
        ("PULL", "10.0.0.1"),
        ("PULL", "10.0.0.2"),
    }
    read.ticks = FORGOTTEN_SECONDS
    read.readers.pulls(subscription_id, "", "10.0.0.1")
    read.ticks += 1
    assert [reader.address for reader in await read.shown()] == ["10.0.0.1"]
    assert not read.readers._attempts


async def test_a_stream_that_has_ended_goes_with_the_last_message_that_it_had(read: Read) -> None:
    stream = read.stream("c")
    delivery = await read.hand_out(stream)
    read.readers.closes(stream)
    assert len(await read.shown()) == 1
    read.ack(delivery)
    assert await read.shown() == []


async def test_a_process_without_readers_writes_nothing(read: Read) -> None:
    assert await read.readers.run_once() == 0
    before = await read.log.rows("SELECT n_tup_ins + n_tup_del FROM pg_stat_user_tables WHERE relname = 'readers'")
    assert await read.readers.run_once() == 0
    after = await read.log.rows("SELECT n_tup_ins + n_tup_del FROM pg_stat_user_tables WHERE relname = 'readers'")
    assert before == after


async def test_rows_of_dead_processes_are_not_shown_and_go(read: Read, log: Log) -> None:
    read.stream("dead")
    await read.readers.run_once()
    read.readers = read.process()
    read.stream("alive")
    assert {reader.client_id for reader in await read.shown()} == {"dead", "alive"}
    read.ticks = SHOWN_FOR.total_seconds()
    assert {reader.client_id for reader in await read.shown()} == {"alive"}
    read.ticks = 100.0
    await read.readers.run_once()
    assert await log.rows("SELECT client_id FROM readers") == [("alive",)]
    await read.readers.leave()
    assert await log.rows("SELECT client_id FROM readers") == []


async def test_what_a_client_calls_itself_is_stored_whatever_it_is(read: Read) -> None:
    read.stream("a\0b\ud800")
    [only] = await read.shown()
    assert only.client_id == "a\ufffdb?"


async def test_consumers_of_a_subscription_that_does_not_exist_are_not_found(read: Read, log: Log) -> None:
    with pytest.raises(NotFound):
        await ConsumerService(log.database, read.clock).list_consumers(
            "projects/p/subscriptions/other", page_size=1
        )
    async with log.database.transaction() as connection:
        assert await list_readers(connection, subscription_id=0, now=read.clock.now()) == []
