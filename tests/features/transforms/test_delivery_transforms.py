"""What transforms leave of a claim, and what the scheduler makes of that."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.core.pulling.long_poll import LongPoll
from broker.core.pulling.pull_queue import PullTerms
from broker.features.transforms.feature import register
from broker.model.delivery import DeliveryRequest
from broker.model.subscription import Subscription
from broker.model.transforms import JavascriptUdf, Transform
from tests.fixtures.broker import PATIENCE_SECONDS
from tests.fixtures.core import make_core
from tests.fixtures.log import SECOND, Log

NO_TWO = (Transform(javascript_udf=JavascriptUdf("f", "function f(m) { return m.data === 'two' ? null : m; }")),)


@pytest.fixture
async def subscription(log: Log, long_poll: LongPoll, tasks: Tasks) -> AsyncIterator[Subscription]:
    """With a transform, which the claims of `long_poll` go through."""
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    core = make_core(log.database, clock, tasks)
    acks = AckCoalescer(core, AckWriter(core), SubscriptionActivity(log.database, clock), flushes_at_once=3)
    transforms = register(core, acks=acks)
    long_poll._scheduler.add_hooks(orders=None, answer=transforms.answer_hook)
    yield replace(log.subscription, transforms=NO_TWO)
    await tasks.close()
    assert transforms.close is not None
    await transforms.close()


async def test_a_pull_whose_messages_were_all_dropped_hears_of_what_is_due_later(
    log: Log, long_poll: LongPoll, subscription: Subscription
) -> None:
    """A claim that brings messages does not ask what is next: who asks, where transforms leave none of them?"""
    await log.publish("one")
    [delivery] = await log.pull()
    await log.modify_ack_deadline(delivery, None, log.start + 3 * SECOND)
    await log.publish("two")
    terms, most = PullTerms(timedelta(seconds=600)), DeliveryRequest(max_messages=10, max_bytes=1_000_000)
    async with asyncio.timeout(PATIENCE_SECONDS):
        pulled = await long_poll.pull(subscription, most, wait_seconds=60, terms=terms)
    assert [message.data for each in pulled for message in each.messages] == [b"one"]
