"""What may wait is bounded: by bytes, by number, by time; and nobody waits for a database that is away (C7)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
import pytest

from broker.api.limits.admission import admission_of
from broker.api.limits.answer_memory import LARGEST_ANSWER_BYTES, AnswerMemory
from broker.api.limits.request_memory import RequestMemory
from broker.api.rpc import Size
from broker.core.acking import ack_coalescer
from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.log.messages import Appended, EncodedMessages, encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.publishing import publish_coalescer
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.db.driver import hot_connection, hot_pool
from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.hot_pool import HotPool
from broker.model.ack_id import AttemptName
from broker.model.errors import NotFound, ResourceExhausted, Unavailable
from broker.model.message import NewMessage
from tests.fixtures.broker import eventually
from tests.fixtures.core import make_core
from tests.fixtures.log import Log
from tests.interleavings.steps import execute, open_transaction, until_waiting


def _batch(count: int = 1, size: int = 1) -> EncodedMessages:
    return encode_messages([NewMessage(data=b"x" * size) for _ in range(count)])


class Parts:
    """The coalescers of a process, on a log."""

    def __init__(self, log: Log, clock: DatabaseClock, tasks: Tasks, *, shards_at_once: int = 6) -> None:
        core = make_core(log.database, clock, tasks)
        self.log, self.tasks = log, tasks
        self.publishes = PublishCoalescer(core, shards_at_once=shards_at_once)
        activity = SubscriptionActivity(log.database, clock)
        self.acks = AckCoalescer(core, AckWriter(core), activity, flushes_at_once=3)

    def publish(
        self, count: int = 1, *, size: int = 1, shard: int = 0, project: str = "projects/p"
    ) -> asyncio.Task[Appended]:
        """`shard`: 0 is the log's, others are not there."""
        batch, shard_id = _batch(count, size), self.log.shard_id + shard

        async def publish() -> Appended:
            return await self.publishes.publish(shard_id, batch, project=project, topic=f"{project}/topics/t")

        return asyncio.create_task(publish())

    def ack(self, project: str = "projects/p", attempt_id: int = 1, shard: int = 0) -> asyncio.Task[object]:
        """`shard`: 0 is the log's, others have nothing."""
        name = AttemptName(self.log.subscription.subscription_id, self.log.shard_id + shard, attempt_id, count=3)
        return asyncio.create_task(self.acks.acknowledge({name: {0, 1}}, project=project))

    @asynccontextmanager
    async def shard_locked(self) -> AsyncIterator[None]:
        async with open_transaction(self.log.database) as locking:
            await execute(locking, "UPDATE shards SET head = head")
            yield

    @asynccontextmanager
    async def attempt_locked(self) -> AsyncIterator[None]:
        """The first of five attempts, of three messages each."""
        values = ", ".join(
            f"({self.log.shard_id}, {self.log.subscription.subscription_id}, {number}, 0, 'delivering', 1,"
            " now() + interval '1 hour', now(), '{[1,4)}', B'111', now(), now())"
            for number in range(1, 6)
        )
        await self.log.execute(
            "INSERT INTO delivery_attempts (shard_id, subscription_id, attempt_id, part, status, attempt_number,"
            " next_delivery_at, delivered_at, seqs, open, first_publish_time, last_publish_time) VALUES " + values
        )
        async with open_transaction(self.log.database) as locking:
            await execute(locking, "UPDATE delivery_attempts SET failure = NULL WHERE attempt_id = 1")
            yield

    @asynccontextmanager
    async def attempts_locked(self) -> AsyncIterator[None]:
        async with open_transaction(self.log.database) as locking:
            await execute(locking, "LOCK TABLE delivery_attempts IN ACCESS EXCLUSIVE MODE")
            yield


@pytest.fixture
async def parts(log: Log) -> AsyncIterator[Parts]:
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    tasks = Tasks()
    yield Parts(log, clock, tasks)
    await tasks.close()


# --- publishes and acks ----------------------------------------------------------------------------------------


async def test_what_waits_behind_a_flush_that_takes_too_long_is_refused_and_what_was_sent_is_answered(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_coalescer, "MAX_WAIT_SECONDS", 0.3)
    async with parts.shard_locked():
        sent = parts.publish()
        await until_waiting(parts.log.database)
        with pytest.raises(ResourceExhausted):
            await parts.publish()  # by the clock
        with pytest.raises(ResourceExhausted):
            parts.publishes.check_capacity(parts.log.shard_id)  # at once
    monkeypatch.undo()
    assert (await sent).first_seq == 1
    assert (await parts.publish()).first_seq == 2
    assert await parts.log.rows("SELECT head FROM shards") == [(2,)]


async def test_a_longer_queue_closes_sooner(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a flush counts as often as flushes wait: else this would take five minutes."""
    monkeypatch.setattr(publish_coalescer, "MAX_WAIT_SECONDS", 300.0)
    monkeypatch.setattr(publish_coalescer, "MAX_FLUSH_MESSAGES", 1)
    async with parts.shard_locked():
        waiting = [parts.publish(1)]
        await until_waiting(parts.log.database)
        while not waiting[-1].done():  # one that finds room waits for the lock
            waiting.append(parts.publish(1))
            await asyncio.sleep(0.001)
        with pytest.raises(ResourceExhausted):
            await waiting.pop()
    await asyncio.gather(*waiting)


async def test_a_slow_shard_does_not_close_another(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_coalescer, "MAX_WAIT_SECONDS", 0.1)
    async with parts.shard_locked():
        sent = parts.publish()
        await until_waiting(parts.log.database)
        with pytest.raises(ResourceExhausted):
            await parts.publish()
        parts.publishes.check_capacity(parts.log.shard_id + 1)
    await sent


async def test_publishes_to_many_shards_of_one_project_do_not_go_before_those_of_another(
    log: Log, tasks: Tasks
) -> None:
    """They stood in one line for the connections."""
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    parts = Parts(log, clock, tasks, shards_at_once=1)
    answered: list[str] = []

    def publish(shard: int, project: str) -> asyncio.Task[Appended]:
        task = parts.publish(shard=shard, project=project)
        task.add_done_callback(lambda _: answered.append(project))
        return task

    async with parts.shard_locked():
        publishes = [publish(0, "projects/greedy")]
        await until_waiting(log.database)
        publishes += [publish(shard, "projects/greedy") for shard in range(1, 20)]
        await asyncio.sleep(0)
        publishes.append(publish(20, "projects/good"))
    await asyncio.gather(*publishes, return_exceptions=True)  # the others' shards are not there
    assert answered.index("projects/good") <= 2
    assert len(answered) == 21


async def test_bytes_of_one_project_that_wait_leave_capacity_for_those_of_another(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_coalescer, "MAX_QUEUED_BYTES", 1_000_000)
    monkeypatch.setattr(publish_coalescer, "MAX_WAIT_SECONDS", 300.0)
    clock, tasks, size = DatabaseClock(log.database), Tasks(), 100_000
    await clock.synchronise()
    parts = Parts(log, clock, tasks)
    async with parts.shard_locked():
        waiting = [parts.publish(size=size)]
        await until_waiting(log.database)
        waiting += [parts.publish(size=size, project="projects/p") for _ in range(20)]
        await asyncio.sleep(0)
        refused = [task.exception() for task in waiting if task.done()]
        assert 10 < len(refused) < 20, "the first one's flush, and what is left to one who is alone"
        assert all(isinstance(error, ResourceExhausted) and "projects/p " in str(error) for error in refused)
        neighbour = parts.publish(size=size, shard=1, project="projects/good")
        small = parts.publish()
        await asyncio.sleep(0)
        assert not small.done()
        with pytest.raises(NotFound):  # there is no such shard; it was not refused
            await neighbour
    assert all(
        isinstance(answer, Appended | ResourceExhausted)
        for answer in await asyncio.gather(*waiting, small, return_exceptions=True)
    )
    assert parts.publishes._large.total == 0
    await tasks.close()


async def test_acks_behind_a_flush_that_takes_too_long_are_refused(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_coalescer, "MAX_WAIT_SECONDS", 0.3)
    async with parts.attempts_locked():
        sent = parts.ack()
        await until_waiting(parts.log.database)
        for _ in range(2):  # by the clock, and at once
            with pytest.raises(Unavailable):
                await parts.ack()
    monkeypatch.undo()
    await sent
    await parts.ack()


async def test_acks_past_their_number_are_refused_by_project(
    log: Log, tasks: Tasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ack_coalescer, "MAX_WAITING_IDS", 6)
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    parts = Parts(log, clock, tasks)
    async with parts.attempts_locked():
        sent = [parts.ack("projects/p"), parts.ack("projects/q")]
        await until_waiting(parts.log.database, 2)
        waiting = [parts.ack("projects/p"), parts.ack("projects/p")]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="of projects/p "):
            await parts.ack("projects/p")
        waiting.append(parts.ack("projects/q"))
    await asyncio.gather(*sent, *waiting)


async def test_acks_of_a_project_do_not_wait_for_those_of_others(parts: Parts) -> None:
    """Two flushes at once: what comes of the project whose flush waits goes with its next one."""
    async with parts.attempt_locked():
        held = [parts.ack("projects/p")]
        await until_waiting(parts.log.database)
        held += [parts.ack("projects/p") for _ in range(3)]
        await parts.ack("projects/q", attempt_id=2)
        await parts.ack("projects/q", attempt_id=2)
        assert not any(ack.done() for ack in held)
    await asyncio.gather(*held)


async def test_acks_in_a_shard_do_not_wait_for_a_flush_of_another(parts: Parts) -> None:
    async with parts.attempt_locked():
        held = parts.ack()
        await until_waiting(parts.log.database)
        await parts.ack(shard=1)
        assert not held.done()
    await held


@pytest.mark.parametrize("shards", [(0, 1), (1, 0)])
async def test_an_ack_in_several_shards_is_answered_when_it_is_written_in_all(
    parts: Parts, shards: tuple[int, int]
) -> None:
    """Whichever of them comes first, the shard 0 is held."""
    subscription_id, shard_id = parts.log.subscription.subscription_id, parts.log.shard_id
    names = {AttemptName(subscription_id, shard_id + shard, 1, count=3): {0, 1} for shard in shards}
    async with parts.attempt_locked():
        ack = asyncio.create_task(parts.acks.acknowledge(names, project="projects/p"))
        await eventually(lambda: parts.acks._turns.under_way == 1)
        await until_waiting(parts.log.database)
        assert not ack.done()
    await ack
    assert await parts.log.rows("SELECT open::text FROM delivery_attempts WHERE attempt_id = 1") == [("001",)]


async def test_a_project_whose_flushes_wait_for_locks_leaves_one_to_others(parts: Parts) -> None:
    """Of three turns the project gets two."""
    async with parts.attempts_locked():
        held = [parts.ack(shard=shard) for shard in range(4)]
        await until_waiting(parts.log.database, 2)
        assert parts.acks._turns.under_way == 2
        others = [parts.ack("projects/q")]
        await until_waiting(parts.log.database, 3)
        assert parts.acks._turns.under_way == 3
    await asyncio.gather(*held, *others)


async def test_acks_that_come_beside_a_flush_of_their_shard_go_together(parts: Parts) -> None:
    """However many flushes may be under way: a statement for each ack would cost several times as much."""
    async with parts.attempt_locked():
        acks = [parts.ack("projects/p")]
        await until_waiting(parts.log.database)
        acks += [parts.ack("projects/p", attempt_id=number) for number in range(2, 6)]
        await asyncio.sleep(0)
        assert not any(ack.done() for ack in acks)
    await asyncio.gather(*acks)
    [(transactions,)] = await parts.log.rows("SELECT count(DISTINCT xmin::text) FROM delivery_attempts")
    assert transactions == 2


async def test_acks_that_wait_when_the_broker_stops_are_refused_at_once(parts: Parts) -> None:
    async with parts.attempts_locked():
        acks = [parts.ack()]
        await until_waiting(parts.log.database)
        acks += [parts.ack(attempt_id=2), parts.ack(shard=1), parts.ack(shard=2)]  # of three turns two are its own
        await until_waiting(parts.log.database, 2)
        assert len(parts.acks._turns) == 1
        await parts.tasks.close()
        acks.append(parts.ack(attempt_id=3))
        for ack in acks:
            with pytest.raises(Unavailable, match="The broker stopped"):
                await ack


# --- connections ------------------------------------------------------------------------------------------------


class Server:
    """Connects as a pool asks, and counts; `away` makes that fail."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.away = False
        self.attempts = 0

    async def connect(self) -> HotConnection:
        self.attempts += 1
        if self.away:
            raise psycopg.OperationalError("away")
        return await self._database._hot_pool._connect()


@pytest.fixture
def server(database: Database) -> Server:
    return Server(database)


@asynccontextmanager
async def _pool(server: Server, size: int) -> AsyncIterator[HotPool]:
    pool = HotPool(server.connect, size=size)
    yield pool
    await pool.close()


@asynccontextmanager
async def _use(pool: HotPool) -> AsyncIterator[HotConnection]:
    connection = await pool.acquire()
    try:
        yield connection
    finally:
        await pool.release(connection)


async def test_nobody_waits_for_a_server_that_is_away_and_it_is_found_again(server: Server) -> None:
    async with _pool(server, 2) as pool:
        server.away = True
        for _ in range(100):
            with pytest.raises(psycopg.OperationalError):
                async with _use(pool):
                    pass
        assert server.attempts < 10, "one tries for all"
        server.away = False

        async def near() -> bool:
            try:
                async with _use(pool):
                    return True
            except psycopg.OperationalError:
                return False

        await eventually(near)


async def test_the_wait_for_a_connection_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_pool, "WAIT_SECONDS", 0.1)
    async with _pool(server, 1) as pool, _use(pool):
        with pytest.raises(psycopg.OperationalError, match="no connection was free"):
            async with _use(pool):
                pass


async def test_a_server_that_does_not_answer_is_given_up_and_idle_connections_to_it_too(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.hot() as idle, database.hot():
        pass
    monkeypatch.setattr(hot_connection, "UNANSWERED_SECONDS", 0.5)
    with pytest.raises(Unavailable):
        async with database.hot() as connection:
            await execute(connection, "SELECT pg_sleep(3600)")  # far longer than a test may take
    assert connection.closed
    assert idle.closed
    monkeypatch.undo()

    async def near() -> bool:
        try:
            await database.now()
        except Unavailable:
            return False
        return True

    await eventually(near)


# --- memory -----------------------------------------------------------------------------------------------------


def test_a_budget_has_capacity_up_to_its_limit_and_for_anything_when_it_is_empty() -> None:
    memory = RequestMemory(100)
    assert memory.has_capacity(1000)
    memory.held += 60
    assert memory.has_capacity(40)
    assert not memory.has_capacity(41)
    assert memory.has_capacity(65, beyond=25)


def test_readers_who_are_slow_leave_capacity_for_others_and_another_project_has_some_whatever_they_hold() -> None:
    memory = AnswerMemory(100)
    slow, extension_fields, other = (
        f"projects/{name}" for name in ("p/subscriptions/s", "p/subscriptions/t", "q/topics/t")
    )
    with memory.holding(slow, 70):
        assert memory.has_capacity(slow)
        with memory.holding(slow, 60):
            assert memory.held == 130
            assert [memory.has_capacity(name) for name in (slow, extension_fields, other)] == [False, False, True]
            with memory.holding(other, 1):
                assert not memory.has_capacity(other)
            with memory.holding("projects/r/topics/t", 70):
                assert not memory.has_capacity(other)
        assert memory.has_capacity(extension_fields)
    assert memory.held == 0


def test_short_answers_have_capacity_for_longer_than_others_and_not_for_ever() -> None:
    """Who is to take a role away from readers that do not read must get through."""
    memory = AnswerMemory(100)
    with memory.holding("projects/p/topics/t", 90):
        assert not memory.has_capacity("projects/p")
        assert memory.has_capacity("projects/p", is_short=True)
        with memory.holding("projects/p", 10 + LARGEST_ANSWER_BYTES):
            assert not memory.has_capacity("projects/p", is_short=True)


def test_large_requests_of_one_sender_leave_capacity_for_those_of_others_and_for_its_own_acks() -> None:
    memory, size = RequestMemory(256_000_000), 10_000_000
    publish, acknowledge = (admission_of(size, memory) for size in (Size.PUBLISH, Size.ACK_IDS))
    taken = 0
    while memory.take_share(("projects/greedy", publish.refusal.code), size, own=0):
        taken += size
    memory.held = taken
    with pytest.raises(ResourceExhausted, match="projects/greedy"):
        publish.take_share(memory, "projects/greedy", size, own=0)
    assert 0.6 * memory.limit < taken < 0.8 * memory.limit, "much of it, for it was alone"
    acknowledge.take_share(memory, "projects/greedy", 500_000, own=0)
    publish.take_share(memory, "projects/good", size, own=0)
    publish.check(memory, size)
    publish.give_back_share(memory, "projects/greedy", taken)
    publish.take_share(memory, "projects/greedy", size, own=0)


def test_what_one_sender_does_not_complete_leaves_capacity_for_what_others_send() -> None:
    memory, size = RequestMemory(256_000_000), 1_000_000
    arriving = 0
    while memory.arrive(("projects/greedy",), size, own=0):
        arriving += size
    assert memory.arrive(("projects/good",), 10 * size, own=0)
    assert not memory.arrive(("projects/greedy",), size, own=size)
    memory.arrived(("projects/greedy",), arriving)
    memory.arrived(("projects/good",), 10 * size)
    assert memory.arrive(("projects/alone",), 10 * memory.limit, own=0), "one that is alone"
