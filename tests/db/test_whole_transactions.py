"""What the store writes together is there together or not at all, on any database with PostgreSQL's protocol.

PostgreSQL makes one transaction of a pipeline without BEGIN; others commit its first statement by itself.  So here
every transaction runs through a relay that does so (tests/fixtures/apart.py), and its session ends after the first
statement, after the second, and so on: only once COMMIT was answered anything may have changed.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

import psycopg
import pytest

from broker.core.log.messages import append_messages, encode_messages
from broker.core.log.packing import encode_scheduled
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.records import journal
from broker.db.driver.database import Database
from broker.db.driver.statements import BEGIN, COMMIT
from broker.features.dead_letters.discarding.rows import Discard, discard
from broker.features.dead_letters.editing import rows as edits
from broker.features.delayed.rows import append_due
from broker.features.import_export.import_rows import StoredPart, append_part
from broker.model.errors import BrokerError
from broker.model.journal import NOBODY, Attribution, Journal, JournalMode
from broker.model.message import NewMessage
from tests.features.import_export.test_copying import Office
from tests.fixtures.apart import Apart, Cut, apart
from tests.fixtures.broker import eventually
from tests.fixtures.dead_letters import DeadLetters, make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log
from tests.interleavings.test_publish_rules import until_waiting_or_done

Act = Callable[[Log], Awaitable[object]]  # on the log as it is behind the relay

TABLES = (
    "shards",
    "message_batches",
    "scheduled_messages",
    "scheduled_ids",
    "cursors",
    "delivery_attempts",
    "dead_letters",
    "delivery_journal",
    "operations",
    "imported_parts",
)


@dataclass
class Ending:
    """Ends the session that has the `after`-th answer, and those that would go on in its place."""

    after: int
    seen: list[str] = field(default_factory=list)  # the statements that were answered

    async def answered(self, _session: object, statement: str) -> None:
        if len(self.seen) < self.after:
            self.seen.append(statement.lower())
        if len(self.seen) == self.after:
            raise Cut


@dataclass
class Holding:
    """Holds the first session in which `statement` was answered, until `go` is set."""

    statement: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answered(self, _session: object, statement: str) -> None:
        if statement == self.statement and not self.reached.is_set():
            self.reached.set()
            await self.go.wait()


@asynccontextmanager
async def behind(relay: Apart, log: Log) -> AsyncIterator[Log]:
    """The log, through connections of its own."""
    database = Database(relay.url, pool_size=2, whole_pipelines=False)
    try:
        yield replace(log, database=database)
    finally:
        await database.close()


async def _no_transaction_is_open(log: Log) -> bool:
    """The server has noticed that the session has ended: until then it holds its locks."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    return not await log.rows(f"{query} AND xact_start IS NOT NULL")


async def _all_rows(log: Log) -> list[str]:
    parts = [f"SELECT '{table} ' || t::text FROM {table} AS t" for table in TABLES]
    return sorted(row for (row,) in await log.rows(" UNION ALL ".join(parts)))


# --- what the store does in one transaction: made ready, and done ------------------------------------------------


async def _publishing(_log: Log) -> Act:
    return lambda log: log.publish("a", "b", key="k")


async def _publishing_now_and_later(log: Log) -> Act:
    given = [NewMessage(data=b"now"), NewMessage(data=b"later")]
    batch = encode_scheduled(given, [None, log.start + SECOND])

    async def publish(log: Log) -> None:
        async with log.session() as session:
            assert await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)

    return publish


async def _coming_due(log: Log) -> Act:
    await (await _publishing_now_and_later(log))(log)

    async def come(log: Log) -> None:
        async with log.session() as session:
            assert await append_due(session, shard_id=log.shard_id, now=log.start + 2 * SECOND)

    return come


async def _claiming_fresh(log: Log) -> Act:
    await log.publish("a", "b")
    return lambda log: log.claim(1)


async def _claiming_due(log: Log) -> Act:
    await log.publish("a", "b")
    await log.pull(2)
    return lambda log: log.claim(now=log.start + 2 * ACK_DEADLINE, max_attempts=5)


async def _claiming_in_order(log: Log) -> Act:
    await log.publish("a", key="k")
    [first] = await log.pull(ordered=True, exactly_once=True)
    await log.publish("b", "c", key="k")
    await log.nack(first)
    return lambda log: log.claim(now=log.start + SECOND, ordered=True, exactly_once=True)


async def _acking_with_a_journal(log: Log) -> Act:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    name, attribution = log.name(delivery), Attribution(Journal(mode=JournalMode.ALL))

    async def acknowledge(log: Log) -> None:
        async with (
            log.session() as session,
            journal.written_down(
                session, shard_id=log.shard_id, attempts=[name], journaled=True, clock=lambda: log.start
            ) as ledger,
        ):
            await log.acknowledge(delivery, [1], connection=session)
            assert ledger is not None
            ledger.acked([(name, {1})], [], {name: [({1}, attribution)]})

    return acknowledge


async def _dead_letters(log: Log) -> DeadLetters:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a", "b")
    return dead_letters


async def _forwarding(log: Log) -> Act:
    dead_letters = await make_dead_letters(log)
    await log.publish("a", "b")
    for delivery in await log.pull(max_attempts=1):
        await log.nack(delivery)
    return lambda log: replace(dead_letters, log=log).forward(log.start)


async def _redriving(log: Log) -> Act:
    dead_letters = await _dead_letters(log)
    return lambda log: replace(dead_letters, log=log).step()


def _asked(dead_letters: DeadLetters) -> Discard:
    return Discard(
        subscription_id=dead_letters.log.subscription.subscription_id,
        shard_ids=[dead_letters.log.shard_id],
        ids=[(dead_letters.log.shard_id, 1)],
        consumable={dead_letters.dead.subscription.subscription_id},
        author=NOBODY,
        now=dead_letters.log.start,
    )


async def _discarding(log: Log) -> Act:
    asked = _asked(await _dead_letters(log))

    async def drop(log: Log) -> None:
        async with log.session() as session:
            await session.run((BEGIN, {}))
            await discard(session, asked, log.attempt_ids)
            await session.run((COMMIT, {}))

    return drop


async def _editing(log: Log) -> Act:
    asked = _asked(await _dead_letters(log))
    mended = edits.Replacement(
        asked=asked, batch=encode_messages([NewMessage(data=b"mended")]), shard_id=log.shard_id
    )

    async def edit(log: Log) -> None:
        async with log.session() as session:
            await session.run((BEGIN, {}))
            await edits.replace_dead_letter(session, mended, log.attempt_ids)
            await session.run((COMMIT, {}))

    return edit


async def _importing(log: Log) -> Act:
    part = StoredPart(topic_id=log.topic.topic_id, import_id="i", number=1, digest=b"d", message_count=2)
    messages = NewMessage(data=b"a"), NewMessage(data=b"b", ordering_key="k")
    batches = {log.shard_id: [encode_messages([each]) for each in messages]}

    async def store(log: Log) -> None:
        async with log.session() as session:
            await append_part(session, part=part, batches=batches, now=log.start)

    return store


async def _copying(log: Log) -> Act:
    other = await make_log(log.database, log.start, "other")
    await log.publish("a", "b")
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    await Office(log, other, clock, tasks).start()

    async def step(log: Log) -> None:
        there = Office(log, other, clock, tasks)
        await there.runner(there.kind()).run_once()
        await tasks.close()

    return step


ACTS = {
    name.removeprefix("_"): act
    for name, act in list(globals().items())
    if name.startswith("_") and name.split("_")[1].endswith("ing") and asyncio.iscoroutinefunction(act)
}


@pytest.mark.parametrize("name", ACTS)
async def test_wherever_its_session_ends_a_transaction_has_happened_or_has_not(log: Log, name: str) -> None:
    act = await ACTS[name](log)
    before, count = await _all_rows(log), 0
    async with apart(log.database.url) as relay:
        while await _all_rows(log) == before:
            count += 1
            ending = Ending(after=count)
            relay.answered = ending.answered
            async with behind(relay, log) as there:
                with suppress(psycopg.OperationalError, BrokerError):
                    await act(there)
            await eventually(lambda: _no_transaction_is_open(log))
            assert len(ending.seen) == count, f"{ending.seen} change nothing"
            if ending.seen[-1] != "commit":
                assert await _all_rows(log) == before, f"{ending.seen} stay"
    assert ending.seen[-1] == "commit"
    assert count > 3  # BEGIN, COMMIT, and more than one between them


async def test_a_claim_passes_nothing_that_is_still_on_its_way(log: Log) -> None:
    """The head moves with the messages: if it had moved before them, what is published next would be first."""
    async with apart(log.database.url) as relay, behind(relay, log) as there:
        holding = Holding("take_sequences")
        relay.answered = holding.answered
        slow = asyncio.create_task(there.publish("first"))
        await holding.reached.wait()
        fast = asyncio.create_task(there.publish("second"))
        await until_waiting_or_done(log, fast)
        seen = await log.pull_texts(now=log.start + SECOND)
        holding.go.set()
        await asyncio.gather(slow, fast)
    assert seen + await log.pull_texts(now=log.start + SECOND) == ["first", "second"]


@pytest.mark.one_server("it is one that is no Citus at first")
async def test_each_server_is_asked_whether_a_pipeline_is_a_transaction(database_url: str) -> None:
    async def is_whole() -> bool:
        database = Database(database_url, pool_size=1)
        async with database.hot() as connection:
            whole = connection.whole_pipelines
        await database.close()
        return whole

    assert await is_whole()
    with psycopg.connect(database_url, autocommit=True) as admin:  # what the extension is known by
        admin.execute(
            "INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)"
            " SELECT 99999, 'citus', extowner, extnamespace, false, '1' FROM pg_extension LIMIT 1"
        )
    assert not await is_whole()
