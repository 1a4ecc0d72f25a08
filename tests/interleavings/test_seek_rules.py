"""The rules of seek and snapshot under concurrency (docs/architecture.md)."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from broker.core.backlog.outcome import Outcome
from broker.core.backlog.seeking import create_snapshot_citus, cursors
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.db.citus.engine import CITUS, Engine
from broker.db.driver import named
from broker.features.resend.rows import Resend, resend
from broker.model.journal import NOBODY
from tests.core.backlog.test_seek import create_snapshot, place, seek_to_snapshot, seek_to_time
from tests.fixtures.log import SECOND, Log
from tests.interleavings.steps import execute, open_transaction, paused, until_waiting


async def a_seek_invalidates_what_a_claim_was_just_handing_out(log: Log) -> None:
    await log.publish("a", "b")
    async with paused(log.database, before="COMMIT") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming))
        await claiming.reached.wait()
        seek = asyncio.create_task(seek_to_time(log, log.start, replay_since=log.start))
        await until_waiting(log.database)
        claiming.go.set()
        [[delivery]] = (await claim).deliveries
        await seek
    assert await log.acknowledge(delivery) == {0}, "its ack id still counts"
    assert await log.pull_texts() == ["a", "b"]


async def test_a_seek_invalidates_what_a_claim_was_just_handing_out(log: Log) -> None:
    await a_seek_invalidates_what_a_claim_was_just_handing_out(log)


async def test_it_would_not_if_the_cursor_were_locked_later(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    unlocked = cursors._LOCK_CURSORS.replace("FOR UPDATE", "")
    monkeypatch.setattr(cursors, "_LOCK_CURSORS", unlocked)
    with pytest.raises(AssertionError):
        await a_seek_invalidates_what_a_claim_was_just_handing_out(log)


async def a_snapshot_misses_nothing_of_a_claim_in_flight(log: Log) -> None:
    await log.publish("a", "b")
    async with paused(log.database, before="COMMIT") as claiming:
        claim = asyncio.create_task(log.claim(1, connection=claiming))
        await claiming.reached.wait()
        creation = asyncio.create_task(create_snapshot(log))
        waiting = asyncio.create_task(until_waiting(log.database))
        await asyncio.wait((creation, waiting), return_when=asyncio.FIRST_COMPLETED)
        claiming.go.set()
        await claim
        snapshot_id, _ = await creation
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    await seek_to_snapshot(log, snapshot_id)
    assert sorted(await log.pull_texts(now=log.start + SECOND)) == ["a", "b"]


async def test_a_snapshot_misses_nothing_of_a_claim_in_flight(log: Log) -> None:
    await a_snapshot_misses_nothing_of_a_claim_in_flight(log)


@pytest.mark.one_server("where shards lie on nodes a snapshot does lock the cursors, in statements of their own")
async def test_it_would_if_it_locked_the_cursors(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = snapshots._CREATE_SNAPSHOT
    locked = statement.replace(
        "FROM cursors\n    WHERE subscription_id = %(subscription_id)s",
        "FROM (SELECT * FROM cursors WHERE subscription_id = %(subscription_id)s FOR UPDATE) AS c",
    )
    assert locked != statement
    monkeypatch.setattr(snapshots, "_CREATE_SNAPSHOT", locked)
    with pytest.raises(AssertionError):
        await a_snapshot_misses_nothing_of_a_claim_in_flight(log)


async def a_snapshot_on_nodes_has_a_message_that_is_claimed_meanwhile_once(log: Log) -> None:
    await log.publish("a", "b")
    async with open_transaction(log.database) as between:  # the copies of cursors and of attempts
        await execute(between, "LOCK TABLE snapshot_outstanding IN EXCLUSIVE MODE")
        creation = asyncio.create_task(create_snapshot(log))
        await until_waiting(log.database)
        claim = asyncio.create_task(log.claim(1))
        waiting = asyncio.create_task(until_waiting(log.database, 2))
        await asyncio.wait((claim, waiting), return_when=asyncio.FIRST_COMPLETED)
    snapshot_id, _ = await creation
    await claim
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await seek_to_snapshot(log, snapshot_id)
    assert sorted(await log.pull_texts(now=log.start + SECOND)) == ["a", "b"]


@pytest.fixture
def snapshots_on_nodes(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, as what `log` needs was made as on one server."""

    async def find_engine(_: object) -> Engine:
        return CITUS

    monkeypatch.setattr(named, "find_engine", find_engine)


@pytest.mark.usefixtures("snapshots_on_nodes")
async def test_a_snapshot_on_nodes_has_a_message_that_is_claimed_meanwhile_once(log: Log) -> None:
    await a_snapshot_on_nodes_has_a_message_that_is_claimed_meanwhile_once(log)


@pytest.mark.usefixtures("snapshots_on_nodes")
async def test_it_would_have_it_twice_if_cursors_were_not_locked(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    async def not_locked(*_: object, **__: object) -> None:
        pass

    monkeypatch.setattr(create_snapshot_citus, "lock_cursors", not_locked)
    with pytest.raises(AssertionError):
        await a_snapshot_on_nodes_has_a_message_that_is_claimed_meanwhile_once(log)


async def test_what_is_published_while_a_seek_looks_for_the_end_is_behind_it(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks twice: by the second look there was more, and the seek failed."""
    real = cursors.position_at

    async def publish_behind(connection: Any, seek: Any, time: datetime) -> tuple[datetime, int]:
        found = await real(connection, seek, time)
        await log.publish("meanwhile")
        return found

    await log.publish("a")
    monkeypatch.setattr(cursors, "position_at", publish_behind)
    await seek_to_time(log, log.start + 1000 * SECOND, replay_since=None)
    monkeypatch.undo()
    assert set(await log.pull_texts(now=log.start + SECOND)) == {"meanwhile"}


async def what_was_resent_behind_a_seek_is_due(log: Log) -> None:
    """Its time is that of when it was asked for, before it waited for the seek."""
    await log.publish("a")
    await log.acknowledge_many(*await log.pull())
    asked = Resend(subscription=log.subscription, ids=[(log.shard_id, 1)], author=NOBODY, now=log.start)
    async with open_transaction(log.database) as resending:
        async with log.database.transaction() as seeking:
            there = place(log, log.start + SECOND)
            await cursors.seek_to_time(seeking, there, time=log.start + SECOND, replay_since=None)
            again = asyncio.create_task(resend(resending, asked, log.attempt_ids))
            await until_waiting(log.database)
        assert list((await again).values()) == [Outcome.RESENT]
    assert await log.pull_texts(now=log.start + 2 * SECOND) == ["a"]


async def test_what_was_resent_behind_a_seek_is_due(log: Log) -> None:
    await what_was_resent_behind_a_seek_is_due(log)


async def test_it_would_not_if_the_floor_stood_at_the_seek(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cursors, "first_due_floor", lambda now: now)
    with pytest.raises(AssertionError):
        await what_was_resent_behind_a_seek_is_due(log)


async def test_a_nack_of_a_process_whose_clock_is_behind_is_due_in_a_new_subscription(log: Log) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    assert await log.nack(delivery, now=log.start - SECOND) == set()
    assert await log.pull_texts(now=log.start + SECOND) == ["a"]
