"""Records of deliveries are written behind the acks, few rows for many; they wait for a database that is away."""

from collections.abc import AsyncIterator

import pytest

from broker.core.acking import delivery_recorder as delivery_records
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.acking.delivery_recorder import DeliveryRecords
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.records.journal_of_message import read_entries
from broker.model.ack_id import AttemptName
from broker.model.errors import BrokerError
from broker.model.journal import Attribution, Author, Event
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import RECORDS_DROPPED
from broker.observability.state_changes import StateChanges
from tests.fixtures.core import make_core
from tests.fixtures.log import Log

ME, YOU = Attribution(None, Author("user:me@b.c")), Attribution(None, Author("user:you@b.c"))


class Acks:
    """Acknowledges messages of a log as a process does, and reads what is on record."""

    def __init__(self, log: Log, clock: DatabaseClock, tasks: Tasks) -> None:
        self.log, self.counters, self.states = log, Counters(), StateChanges()
        core = make_core(log.database, clock, tasks, states=self.states, counters=self.counters)
        self.records = DeliveryRecords(core)
        writer = AckWriter(core, records=self.records)
        activity = SubscriptionActivity(log.database, clock)
        self._coalescer = AckCoalescer(core, writer, activity, flushes_at_once=3)

    async def acknowledge(self, name: AttemptName, *ordinals: int, attribution: Attribution = ME) -> None:
        await self._coalescer.acknowledge({name: set(ordinals)}, project="projects/p", attribution=attribution)

    async def authors(self, seq: int) -> list[str]:
        """Of the acknowledgements of a message."""
        of = {"subscription_id": self.log.subscription.subscription_id, "shard_id": self.log.shard_id}
        async with self.log.database.hot() as connection:
            entries = await read_entries(connection, **of, seq=seq)
        return [entry.author.principal for entry in entries if entry.event is Event.ACKED]


@pytest.fixture
async def acks(log: Log) -> AsyncIterator[Acks]:
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    yield Acks(log, clock, tasks)
    await tasks.close()


async def test_each_message_of_a_response_is_recorded_for_whoever_acknowledged_it(log: Log, acks: Acks) -> None:
    await log.publish(*"abcdef")
    [delivery] = await log.pull()
    name = log.name(delivery)
    await acks.acknowledge(name, 0, 2)
    await acks.acknowledge(name, 2, 3, attribution=YOU)
    await acks.records.flush()
    assert [await acks.authors(seq) for seq in range(1, 7)] == [
        *(["user:me@b.c"], [], ["user:me@b.c"], ["user:you@b.c"]),
        *([], []),
    ]


async def test_what_the_database_does_not_take_is_written_once_it_does(log: Log, acks: Acks) -> None:
    await log.publish(*"ab")
    [delivery] = await log.pull()
    await log.execute("ALTER TABLE delivery_records ADD CONSTRAINT refuse CHECK (false) NOT VALID")
    await acks.acknowledge(log.name(delivery), 0)
    with pytest.raises(BrokerError):
        await acks.records.flush()
    await acks.acknowledge(log.name(delivery), 1, attribution=YOU)
    assert await acks.authors(1) == []
    await log.execute("ALTER TABLE delivery_records DROP CONSTRAINT refuse")
    await acks.records.flush()
    await acks.records.flush()  # nothing is left
    assert [await acks.authors(seq) for seq in (1, 2)] == [["user:me@b.c"], ["user:you@b.c"]]


async def test_what_waits_is_bounded_and_what_is_dropped_is_counted_and_said(
    log: Log, acks: Acks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery_records, "FLUSH_BYTES", 1)
    monkeypatch.setattr(delivery_records, "MAX_PENDING_BYTES", 3 * 420)
    await log.publish(*"abcde")
    [delivery] = await log.pull()
    for ordinal in range(5):
        await acks.acknowledge(log.name(delivery), ordinal)
    await acks.records.flush()
    assert [await acks.authors(seq) for seq in range(1, 6)] == [[], [], *[["user:me@b.c"]] * 3]
    assert acks.counters.process[RECORDS_DROPPED] == 2
    assert acks.states.lasts("records")


async def test_a_client_may_call_itself_anything(log: Log, acks: Acks) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    await acks.acknowledge(log.name(delivery), 0, attribution=Attribution(None, Author("a\0b" + "c" * 1_000)))
    await acks.records.flush()
    assert await acks.authors(1) == ["ab" + "c" * 254]


async def test_messages_of_many_responses_are_one_row(log: Log, acks: Acks) -> None:
    for text in "abcdefgh":
        await log.publish(text)
        [delivery] = await log.pull()
        await acks.acknowledge(log.name(delivery), 0)
    await acks.records.flush()
    assert await log.rows("SELECT count(*), sum(length(entries)) FROM delivery_records") == [(1, 8 * 20)]
    assert [await acks.authors(seq) for seq in range(1, 9)] == [["user:me@b.c"]] * 8
