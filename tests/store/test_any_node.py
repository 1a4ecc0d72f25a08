"""What a connection to a worker of a cluster cannot write is written by way of the coordinator (L1)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from broker.domain.delivery import Demand
from broker.domain.journal import Journal, JournalMode
from broker.store.claim.claim import claim_messages
from broker.store.claim.request import Claimant, ClaimRequest
from broker.store.driver.hot_connection import HotConnection, NeedsCoordinator
from broker.store.driver.statements import BEGIN, COMMIT, Statement
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log

MINUTE = timedelta(minutes=1)
_ONE = Statement(b"one", b"SELECT 1")


@asynccontextmanager
async def at_worker(log: Log) -> AsyncIterator[HotConnection]:
    """A session that takes its server for one that gives numbers of its own to rows of the journal."""
    async with log.database.hot() as connection:
        connection.gives_numbers = False
        try:
            yield connection
        finally:
            connection.gives_numbers = True


async def _publish_old_and_new(log: Log) -> datetime:
    later = log.start + 2 * MINUTE
    await log.publish("old")
    await log.publish("new", now=later)
    return later


async def test_a_claim_that_meets_what_expired_changes_nothing_there(log: Log) -> None:
    later = await _publish_old_and_new(log)
    cursors = "SELECT next_publish_time, next_seq, due_floor FROM cursors"
    before = await log.rows(cursors)
    async with at_worker(log) as worker:
        with pytest.raises(NeedsCoordinator):
            await log.claim(now=later, retention=MINUTE, connection=worker)
        assert await log.rows(cursors) == before
        assert await log.attempts() == []
        # Nothing is locked: nobody waits, and nothing is passed over as another's.
        assert await log.rows("SELECT count(*) FROM (SELECT FROM cursors FOR UPDATE SKIP LOCKED) AS c") == [(1,)]
        assert await log.pull_texts(now=later, retention=MINUTE) == ["new"]
        await log.publish("next", now=later + SECOND)
        [delivery] = await log.pull(now=later + SECOND, retention=MINUTE, connection=worker)  # it is used on
        assert [message.data for message in delivery.messages] == [b"next"]
    assert await log.rows("SELECT event FROM delivery_journal") == [("EXPIRED",)]


async def test_a_claim_for_a_journal_locks_nothing_there(log: Log) -> None:
    await log.publish("a")
    claimant = Claimant(
        subscription_id=log.subscription.subscription_id,
        demands=[Demand(max_messages=1, max_bytes=1_000)],
        ack_deadline=ACK_DEADLINE,
        retained_since=log.start - MINUTE,
        journal=Journal(mode=JournalMode.ALL),
    )
    request = ClaimRequest(shard_id=log.shard_id, claimants=[claimant], now=log.start)
    async with at_worker(log) as worker:
        with pytest.raises(NeedsCoordinator):
            await claim_messages(worker, request, log.attempt_ids)
        assert not worker.in_transaction
    assert await log.pull_texts() == ["a"]


async def test_what_is_undone_leaves_a_connection_that_begins_anew(log: Log) -> None:
    async with log.database.hot() as connection:
        await connection.run((BEGIN, {}), (_ONE, {}))
        await connection.undo()
        assert not connection.in_transaction
        assert await connection.run((BEGIN, {}), (_ONE, {}), (COMMIT, {})) == [[], [(1,)], []]
