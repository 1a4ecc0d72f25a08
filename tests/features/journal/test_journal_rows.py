"""The journal is bounded, in time and in rows, and tells nothing that did not commit (F3)."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import acknowledge, acknowledge_in_order
from broker.core.claiming.transaction import passed
from broker.core.records import journal
from broker.core.records.journal_of_message import read_entries, read_settlement
from broker.core.retention.retention import delete_unwanted
from broker.db.citus.engine import CITUS, Engine
from broker.db.driver import named
from broker.db.driver.database import Database
from broker.model.ack_id import attempt_name
from broker.model.delivery import Delivery
from broker.model.journal import BUCKET, Attribution, Event, Journal, JournalMode, rows_of, without
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log
from tests.query_plans.recorder import Recorder

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


@pytest.fixture(params=[False, True], ids=["", "on nodes"])
def sweeping(log: Log, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """By one statement, and as where rows lie on nodes, by several."""

    async def find_engine(_: object) -> Engine:
        return CITUS

    if request.param:
        monkeypatch.setattr(named, "find_engine", find_engine)


@pytest.mark.usefixtures("sweeping")
async def test_rows_past_their_retention_and_of_nobody_are_deleted(log: Log) -> None:
    await _write(log, 1, ago=timedelta(days=8))
    await _write(log, 2, ago=timedelta(days=6))
    await _write(log, 3, subscription_id=4711)
    assert (await _sweep(log), await _rows(log)) == (2, 1)
    await log.execute("""UPDATE subscriptions SET settings = '{"extensions": {"journal": {"retention": "60s"}}}'""")
    assert (await _sweep(log), await _rows(log)) == (1, 0)


@pytest.mark.usefixtures("sweeping")
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
    attribution = Attribution(ALL)
    of = {"subscription_id": name.subscription_id, "shard_id": name.shard_id, "seq": delivery.messages[0].seq}

    async def ack(*, fails: bool) -> None:
        async with (
            database.hot() as connection,
            journal.written_down(
                connection, shard_id=name.shard_id, attempts=[name], journaled=True, clock=lambda: log.start
            ) as ledger,
        ):
            assert ledger is not None
            missing = await acknowledge(connection, shard_id=name.shard_id, acks={name: {0}})
            ledger.acked([(name, {0})], [missing], {name: [({0}, attribution)]})
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


async def test_what_stands_behind_a_released_message_of_a_key_was_not_handed_out(log: Log) -> None:
    await log.publish("a", "b", key="k")
    [both] = await log.pull(ordered=True)
    await log.nack(both)
    [first] = await log.pull(1, ordered=True)
    assert (len(first.messages), first.returned) == (1, 1)
    of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
    async with (
        log.database.hot() as connection,
        journal.written_down(
            connection, shard_id=log.shard_id, attempts=[log.name(first)], journaled=True, clock=lambda: log.start
        ) as ledger,
    ):
        assert ledger is not None
        ledger.released([log.name(first)], Attribution(ALL))
    async with log.database.hot() as hot:
        attribution = [await read_entries(hot, seq=message.seq, **of) for message in both.messages]
    assert [[entry.event for entry in entries] for entries in attribution] == [[Event.RELEASED], []]


def test_rows_are_of_one_bucket_and_of_bounded_size() -> None:
    whole = list(rows_of(ALL, 1, Event.ACKED, 1, [(BUCKET - 2, BUCKET + 3)]))
    assert [(row.bucket, row.seqs) for row in whole] == [
        (0, f"{{[{BUCKET - 2},{BUCKET})}}"),
        (1, f"{{[{BUCKET},{BUCKET + 3})}}"),
    ]
    gaps = list(rows_of(None, 1, Event.SKIPPED, 0, [(n, n + 1) for n in range(0, 1000, 2)], span=True))
    assert (len(gaps), max(len(row.seqs) for row in gaps) < 2000) == (4, True)
    never = replace(ALL, sample=1e-9)
    assert list(rows_of(never, 1, Event.ACKED, 1, [(1, 1000)])) == []


def test_ranges_without_others() -> None:
    assert without([(0, 10), (20, 30)], [(2, 3), (8, 22), (29, 40)]) == [(0, 2), (3, 8), (22, 29)]
    assert without([(0, 10)], []) == [(0, 10)]
    assert without([(0, 10)], [(0, 10)]) == []


async def _settled(log: Log, seq: int) -> Event | None:
    async with log.database.hot() as hot:
        of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
        entry = await read_settlement(hot, seq=seq, **of)
    return entry and entry.event


async def _acknowledge_in_order(log: Log, delivery: Delivery) -> None:
    async with log.database.hot() as hot:
        acks = {log.name(delivery): {0}}
        await acknowledge_in_order(hot, shard_id=log.shard_id, acks=acks, exactly_once=set(), now=log.start)


async def test_what_expires_of_an_ordering_key_is_told_wherever_it_stood(log: Log) -> None:
    """It came back, or waits in the log for what is out: claims let it go.  What is acked has not expired."""
    await log.publish("a", "b", key="k")
    await log.publish("c", key="other")
    _, other = await log.pull(3, ordered=True, max_run=1)
    now = log.start + SECOND
    await log.publish("d", key="k", now=now)
    options: dict[str, Any] = {"ordered": True, "retention": timedelta(seconds=59)}
    await _acknowledge_in_order(log, other)
    later = log.start + timedelta(minutes=1)
    assert await log.pull_texts(now=later, **options) == ["d"]
    assert [await _settled(log, seq) for seq in (1, 2, 3, 4)] == [Event.EXPIRED, Event.EXPIRED, None, None]


async def test_what_waits_for_a_key_that_comes_free_has_expired_with_it(log: Log) -> None:
    await log.publish("a", "b", "c", key="k")
    [delivery] = await log.pull(3, ordered=True, max_run=1)
    await _acknowledge_in_order(log, delivery)
    assert await log.pull_texts(now=log.start + timedelta(minutes=1), ordered=True, retention=SECOND) == []
    assert [await _settled(log, seq) for seq in (1, 2, 3)] == [None, Event.EXPIRED, Event.EXPIRED]


async def test_what_the_janitor_lets_go_has_expired(log: Log) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    await log.acknowledge(delivery, [1])
    async with log.database.connection() as connection:
        await delete_unwanted(connection, database=log.database, now=log.start + timedelta(days=8))
    assert [await _settled(log, seq) for seq in (1, 2, 3)] == [Event.EXPIRED, None, Event.EXPIRED]


async def test_a_claim_with_nothing_past_its_retention_asks_for_nothing_more(log: Log) -> None:
    await log.publish("a", "b")
    async with log.database.hot() as session:
        recorder = Recorder(session)
        await log.pull(1, connection=recorder)  # type: ignore[arg-type]
        await log.pull(now=log.start + ACK_DEADLINE, connection=recorder)  # type: ignore[arg-type]
    assert not {passed._INSERT_EXPIRED, passed._INSERT_EXPIRED_OF_KEYS, journal._INSERT_JOURNAL} & {*recorder.sent}
