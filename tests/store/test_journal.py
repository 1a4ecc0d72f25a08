"""The journal is bounded, in time and in rows, and tells nothing that did not commit (F3)."""

from dataclasses import replace
from datetime import timedelta

import pytest

from broker.domain.ack_id import attempt_name
from broker.domain.journal import BUCKET, NO_JOURNAL, Event, Journal, JournalMode, Told, rows_of, without
from broker.store.driver.database import Database
from broker.store.log import journal
from broker.store.log.delivery_attempts import acknowledge
from broker.store.looking.journal import read_entries, read_settlement
from tests.fixtures.log import Log

ALL = Journal(mode=JournalMode.ALL)


async def _write(log: Log, *seqs: int, ago: timedelta = timedelta(0), subscription_id: int = 0) -> None:
    of = subscription_id or log.subscription.subscription_id
    ranges = [(seq, seq + 1) for seq in seqs]
    async with log.database.hot() as connection:
        for row in rows_of(ALL, of, Event.ACKED, 1, ranges):
            await connection.run(journal.journal_statement(log.shard_id, [row], log.start - ago))


async def _rows(log: Log) -> int:
    [(count,)] = await log.rows("SELECT count(*) FROM delivery_journal")
    return int(count)


async def _sweep(log: Log) -> int:
    async with log.database.connection() as connection:
        return await journal.delete_old_journal(connection, now=log.start)


async def test_rows_past_their_retention_and_of_nobody_are_deleted(log: Log) -> None:
    await _write(log, 1, ago=timedelta(days=8))
    await _write(log, 2, ago=timedelta(days=6))
    await _write(log, 3, subscription_id=4711)
    assert (await _sweep(log), await _rows(log)) == (2, 1)
    await log.execute("""UPDATE subscriptions SET extensions = '{"journal": {"retention": 60}}'""")
    assert (await _sweep(log), await _rows(log)) == (1, 0)


async def test_the_newest_rows_stay_when_there_are_too_many(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "MAX_ROWS", 3)
    for seq in range(10):
        await _write(log, seq, ago=timedelta(seconds=10 - seq))
    assert await _sweep(log) == 7
    of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
    async with log.database.hot() as hot:
        assert [len(await read_entries(hot, seq=seq, **of)) for seq in (6, 7, 9)] == [0, 1, 1]


async def test_an_ack_that_is_undone_is_not_told(log: Log, database: Database) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    name = attempt_name(log.subscription.subscription_id, delivery)
    told = Told(ALL)
    of = {"subscription_id": name.subscription_id, "shard_id": name.shard_id, "seq": delivery.messages[0].seq}

    async def ack(*, fails: bool) -> None:
        async with (
            database.hot() as connection,
            journal.written_down(
                connection, shard_id=name.shard_id, attempts=[name], told=True, clock=lambda: log.start
            ) as ledger,
        ):
            assert ledger is not None
            missing = await acknowledge(connection, shard_id=name.shard_id, acks={name: {0}})
            ledger.acked([(name, {0})], [missing], {name: [({0}, told)]})
            if fails:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        await ack(fails=True)
    async with database.hot() as hot:
        assert await read_entries(hot, **of) == []
    await ack(fails=False)
    await ack(fails=False)
    async with database.hot() as hot:
        assert [entry.event for entry in await read_entries(hot, **of)] == [Event.ACKED]
        settled = await read_settlement(hot, **of)
    assert settled is not None
    assert settled.time == log.start


def test_rows_are_of_one_bucket_and_of_bounded_size() -> None:
    whole = list(rows_of(ALL, 1, Event.ACKED, 1, [(BUCKET - 2, BUCKET + 3)]))
    assert [(row.bucket, row.seqs) for row in whole] == [
        (0, f"{{[{BUCKET - 2},{BUCKET})}}"),
        (1, f"{{[{BUCKET},{BUCKET + 3})}}"),
    ]
    gaps = list(rows_of(None, 1, Event.SEEKED_PAST, 0, [(n, n + 1) for n in range(0, 1000, 2)], span=True))
    assert (len(gaps), max(len(row.seqs) for row in gaps) < 2000) == (4, True)
    assert list(rows_of(NO_JOURNAL, 1, Event.ACKED, 1, [(1, 2)])) == []
    never = replace(ALL, sample=1e-9)
    assert list(rows_of(never, 1, Event.ACKED, 1, [(1, 1000)])) == []


def test_ranges_without_others() -> None:
    assert without([(0, 10), (20, 30)], [(2, 3), (8, 22), (29, 40)]) == [(0, 2), (3, 8), (22, 29)]
    assert without([(0, 10)], []) == [(0, 10)]
    assert without([(0, 10)], [(0, 10)]) == []
