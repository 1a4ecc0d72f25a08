"""What is resent is delivered once more, to one subscription, and once however often it is asked for (G2)."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.domain.errors import FailedPrecondition
from broker.domain.journal import NOBODY
from broker.domain.resend import Outcome
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.resend import Resend, resend
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.store.interleavings.steps import open_transaction, until_waiting

RESENT, OUT, WAITING = Outcome.RESENT, Outcome.OUTSTANDING, Outcome.WAITING


async def _resend(log: Log, *seqs: int, connection: HotConnection | None = None) -> Sequence[Outcome]:
    ids = [(log.shard_id, seq) for seq in seqs]
    asked = Resend(subscription=log.subscription, ids=ids, author=NOBODY, now=log.start + SECOND)
    if connection is not None:
        done = await resend(connection, asked, log.attempt_ids)
    else:
        async with open_transaction(log.database) as session:
            done = await resend(session, asked, log.attempt_ids)
    return [done[id_] for id_ in ids]


async def test_what_was_acked_comes_once_more_and_what_is_to_come_is_left_as_it_is(log: Log) -> None:
    await log.publish(*"abcdef")
    [delivery] = await log.pull(4)
    await log.acknowledge(delivery, [0, 1])
    await log.nack(delivery, [2])
    assert await _resend(log, 2, 3, 4, 5, 7) == [RESENT, WAITING, OUT, WAITING, Outcome.UNKNOWN]
    assert await _resend(log, 2) == [WAITING]
    again = await log.pull(now=log.start + 2 * SECOND)
    assert sorted(texts(again)) == list("bcef")
    assert {each.attempt_number for each in again if "b" in texts([each])} == {1}
    late = log.start + 2 * ACK_DEADLINE
    await log.acknowledge_many(*again, *await log.pull(now=late))
    assert await log.attempts() == []
    assert await log.pull(now=late) == []


async def test_of_a_key_what_is_out_or_waits_is_left_as_it_is(log: Log) -> None:
    log.subscription = replace(log.subscription, enable_message_ordering=True)
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    await log.publish(*"abcd", key="k")
    [delivery] = await log.pull(2, ordered=True)
    assert await _resend(log, 1, 3) == [OUT, WAITING]
    await log.nack(delivery)
    assert await log.pull_texts(ordered=True, now=log.start + SECOND) == ["a", "b"]


async def test_two_that_resend_at_once_deliver_it_once(log: Log) -> None:
    await log.publish("a")
    await log.acknowledge_many(*await log.pull())
    async with open_transaction(log.database) as first:
        assert await _resend(log, 1, connection=first) == [RESENT]
        second = asyncio.create_task(_resend(log, 1))
        await until_waiting(log.database)
    assert await second == [WAITING]
    assert await log.pull_texts(now=log.start + 2 * SECOND) == ["a"]


async def test_what_nobody_retains_and_what_the_filter_does_not_match_is_said(log: Log) -> None:
    await log.publish("a")
    await log.publish("b")
    await log.acknowledge_many(*await log.pull())
    await log.execute("DELETE FROM message_batches WHERE last_seq = 1")
    log.subscription = replace(log.subscription, filter_path="exists($.env)")
    assert await _resend(log, 1, 2) == [Outcome.NOT_RETAINED, Outcome.FILTERED]
    assert await log.attempts() == []


async def test_a_subscription_that_is_detached_gets_nothing(log: Log) -> None:
    await log.publish("a")
    await log.execute("DELETE FROM cursors")
    with pytest.raises(FailedPrecondition, match="detached"):
        await _resend(log, 1)
