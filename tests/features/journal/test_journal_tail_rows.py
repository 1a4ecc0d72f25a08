"""How far a journal can be read while it is written: what is committed late is not passed (F3)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from broker.core.records.journal import journal_statement
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT, hot_statement
from broker.features.journal.journal_tail import LONGEST_SECONDS, Horizon
from broker.features.journal.rows import list_written, read_ends
from broker.model.journal import Event, Journal, JournalMode, rows_of
from tests.fixtures.log import Log

_EVER = datetime(1970, 1, 1, tzinfo=UTC)
# As whoever writes into a journal has one, of the shard.
_LOCK = hot_statement(
    "lock", "-- parameters: shard_id int8\nSELECT FROM cursors WHERE shard_id = %(shard_id)s FOR UPDATE"
)
_LOCK_HEAD = hot_statement(
    "lock_head", "-- parameters: shard_id int8\nSELECT FROM shards WHERE shard_id = %(shard_id)s FOR UPDATE"
)


class _Tail:
    def __init__(self, log: Log, session: HotConnection) -> None:
        self.log, self.session, self.horizon, self.attribution = log, session, Horizon(), list[int]()
        self.after = 0

    async def observe(self, at: float = 0.0) -> list[int]:
        """The sequences that are told by now."""
        self.horizon.observe(await read_ends(self.session), at)
        until, of = self.horizon.number, self.log.subscription.subscription_id
        rows = await list_written(self.session, subscription_id=of, after=self.after, until=until, since=_EVER)
        self.after = max(self.after, until)
        self.attribution += [row.ranges[0][0] for row in rows]
        return self.attribution


async def _write(log: Log, session: HotConnection, seq: int) -> None:
    of = log.subscription.subscription_id
    [row] = rows_of(Journal(mode=JournalMode.ALL), of, Event.ACKED, 1, [(seq, seq + 1)])
    await session.run(journal_statement(log.shard_id, [row], log.start))


@asynccontextmanager
async def _sessions(log: Log) -> AsyncIterator[tuple[HotConnection, HotConnection, _Tail]]:
    async with log.database.hot() as one, log.database.hot() as other, log.database.hot() as reader:
        yield one, other, _Tail(log, reader)


async def test_a_row_that_is_committed_late_is_told_before_those_behind_it(log: Log) -> None:
    async with _sessions(log) as (late, early, tail):
        await late.run((BEGIN, {}), (_LOCK, {"shard_id": log.shard_id}))
        await _write(log, late, 1)
        assert await tail.observe() == []
        await _write(log, early, 2)
        assert [await tail.observe() for _ in range(3)][-1] == []
        await late.run((COMMIT, {}))
        assert await tail.observe() == [1, 2]


async def test_whoever_begins_later_holds_nothing_up_and_is_not_passed(log: Log) -> None:
    async with _sessions(log) as (one, other, tail):
        await one.run((BEGIN, {}), (_LOCK, {"shard_id": log.shard_id}))
        await _write(log, one, 1)
        await tail.observe()
        await other.run((BEGIN, {}), (_LOCK_HEAD, {"shard_id": log.shard_id}))  # there is always one under way
        await _write(log, other, 2)
        await one.run((COMMIT, {}))
        assert await tail.observe() == [1]
        await _write(log, one, 3)
        assert [list(await tail.observe()) for _ in range(2)] == [[1], [1]]
        await other.run((COMMIT, {}))
        assert await tail.observe() == [1, 2, 3]


async def test_a_transaction_of_others_holds_a_tail_up_for_a_minute_and_no_longer(log: Log) -> None:
    async with _sessions(log) as (others, own, tail):
        await others.run((BEGIN, {}), (_LOCK, {"shard_id": log.shard_id}))
        await _write(log, own, 1)
        assert await tail.observe(0.0) == []
        assert await tail.observe(LONGEST_SECONDS) == []
        assert await tail.observe(LONGEST_SECONDS + 1) == [1]
        await others.run((COMMIT, {}))
