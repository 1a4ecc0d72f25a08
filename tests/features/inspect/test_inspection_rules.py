"""Looking does not touch (F3): what looks takes no lock that anything waits for, and waits for nothing itself.

All that can be looked at is looked at in one transaction that stays open, as none of the broker's does: whatever it
took by a look it still has while others work.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from broker.core.lag import lag_rows as lag
from broker.core.log import logged_message, published
from broker.core.records import journal_of_message as journal
from broker.db.driver.hot_connection import HotConnection
from broker.features.inspect import backlog_rows as backlog_messages
from broker.features.inspect import topic_rows as topic_messages
from broker.features.inspect.backlog_page import BacklogPage
from broker.features.inspect.deliveries import rows as delivery_reports
from broker.features.inspect.topic_page import ORDERS, TopicPage
from tests.core.backlog.test_seek import seek_to_time
from tests.fixtures.broker import PATIENCE_SECONDS
from tests.fixtures.log import ACK_DEADLINE, Log, texts
from tests.fixtures.waiting import waiting_sessions
from tests.interleavings.steps import changed, execute, open_transaction, paused, until_waiting

# Beside the locks that a snapshot is, and that only a change of a table's definition would wait for.
_LOCKS = """
    SELECT DISTINCT mode FROM pg_locks
    WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'
"""
_ROWS = """
    SELECT 'cursor', c::text, c.xmin::text, c.xmax::text FROM cursors AS c
    UNION ALL SELECT 'attempt', d::text, d.xmin::text, d.xmax::text FROM delivery_attempts AS d
    UNION ALL SELECT 'subscription', s::text, s.xmin::text, s.xmax::text FROM subscriptions AS s
    UNION ALL SELECT 'shard', s::text, s.xmin::text, s.xmax::text FROM shards AS s
    ORDER BY 1, 2
"""


async def _check(log: Log, session: HotConnection) -> None:
    """At everything, as `{topic}/messages`, `{subscription}/messages`, `messages/{id}`, lags and tails do."""
    now, long_ago, shards = log.start, log.start - timedelta(days=1), [log.shard_id]
    of = {"subscription_id": log.subscription.subscription_id, "shard_id": log.shard_id}
    for order in ORDERS:
        topic = topic_messages.Asked(
            shard_ids=shards, filter_path=None, retained_since=long_ago, now=now, page=TopicPage(10, order)
        )
        await topic_messages.list_topic_messages(session, topic)
    subscription_gauges = backlog_messages.Asked(
        subscription_id=log.subscription.subscription_id,
        shard_ids=shards,
        ordered=True,
        retained_since=long_ago,
        filter_path=None,
        log_path=None,
        page=BacklogPage(100),
        now=now,
    )
    await backlog_messages.list_messages(session, subscription_gauges)
    for seq in (1, 3, 5):
        message = await logged_message.read_message(session, shard_id=log.shard_id, id_seq=seq)
        assert message is not None
        [delivery] = await delivery_reports.read_deliveries(
            session, message=message, subscriptions=[log.subscription]
        )
        await delivery_reports.count_before(session, delivery, now=now)
        await journal.read_entries(session, **of, seq=seq)
    await lag.read_lag(session, subscriptions=[log.subscription], now=now)
    ends = await published.read_shard_ends(session, shard_ids=shards)
    await published.list_published(session, after=ends[log.shard_id], filter_path=None)


@asynccontextmanager
async def _looked(log: Log, *, changes_nothing: bool = True) -> AsyncIterator[HotConnection]:
    """Messages that are acked, out, and not handed out; looked at in a transaction that is open."""
    await log.publish(*"abcdef")
    [acked], [_] = await log.pull(2), await log.pull(2)
    await log.acknowledge(acked, [0])
    before = await log.rows(_ROWS)
    async with open_transaction(log.database) as session:
        await _check(log, session)
        assert not changes_nothing or await log.rows(_ROWS) == before
        yield session


async def _blocked(log: Log) -> set[tuple[Any, ...]]:
    async with log.database.connection() as connection:
        return await waiting_sessions(connection)


async def _work(log: Log) -> None:
    """Publish, claim, nack, claim again, ack, seek."""
    await log.publish("g")
    [claimed] = await log.pull()
    assert texts([claimed]) == ["e", "f", "g"]
    await log.nack(claimed, [0])
    later = log.start + ACK_DEADLINE
    due = await log.pull(now=later)
    assert sorted(texts(due)) == ["b", "c", "d", "e", "f", "g"]
    for delivery in due:
        await log.acknowledge(delivery)
    await seek_to_time(log, later, replay_since=None)


async def test_nothing_waits_for_one_who_looks(log: Log) -> None:
    async with _looked(log) as session:
        assert await execute(session, _LOCKS) == [("AccessShareLock",)]
        [(transaction,)] = await execute(session, "SELECT pg_current_xact_id_if_assigned()::text")
        assert transaction is None, "it has written, or locked a row"
        async with asyncio.timeout(PATIENCE_SECONDS):
            await _work(log)
        assert await _blocked(log) == set()


@pytest.mark.one_server("on nodes it is a node's transaction that locks rows")
@pytest.mark.parametrize(
    ("module", "name", "old", "new"),
    [
        (
            delivery_reports,
            "_READ_DELIVERY_FACTS",
            "LEFT JOIN cursors AS c",
            "LEFT JOIN (SELECT * FROM cursors FOR SHARE) AS c",
        ),
        (backlog_messages, "_LIST_ATTEMPTS", "LIMIT", "FOR SHARE LIMIT"),
    ],
)
async def test_it_would_if_a_look_locked_rows(
    log: Log, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, old: str, new: str
) -> None:
    monkeypatch.setattr(module, name, changed(getattr(module, name), old, new))
    async with _looked(log, changes_nothing=False) as session:
        [(transaction,)] = await execute(session, "SELECT pg_current_xact_id_if_assigned()::text")
        assert transaction is not None
        work = asyncio.create_task(_work(log))
        await until_waiting(log.database)
        assert not work.done()
    await work


async def test_one_who_looks_does_not_wait_for_a_claim_and_sees_what_was_before_it(log: Log) -> None:
    await log.publish(*"abcdef")
    async with paused(log.database, before="COMMIT") as claiming:
        claim = asyncio.create_task(log.pull(2, connection=claiming))
        await claiming.reached.wait()
        async with asyncio.timeout(PATIENCE_SECONDS), open_transaction(log.database) as session:
            await _check(log, session)
            assert await _blocked(log) == set()
        claiming.go.set()
        assert texts(await claim) == ["a", "b"]
