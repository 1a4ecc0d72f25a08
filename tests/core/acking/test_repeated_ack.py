"""An ack that is sent or written once more succeeds again (exactly-once delivery)."""

import asyncio
from datetime import timedelta

from broker.core.acking.ack_coalescer import AckCoalescer
from broker.core.acking.ack_writer import AckWriter
from broker.core.expiration.subscription_activity import SubscriptionActivity
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from tests.fixtures.core import make_core
from tests.fixtures.log import Log
from tests.interleavings.steps import paused, until_waiting


async def test_a_repeated_ack_of_a_key_succeeds_beside_the_claim_that_lets_the_key_go(log: Log) -> None:
    """The claim puts what was acked aside, in a row that a statement which waits for it does not see."""
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    core = make_core(log.database, clock, tasks)
    activity = SubscriptionActivity(log.database, clock)
    acks = AckCoalescer(core, AckWriter(core), activity, flushes_at_once=3)
    await log.publish("a1", key="a")
    [run] = await log.pull(ordered=True, exactly_once=True)
    ack = {log.name(run): {0}}
    assert not await acks.acknowledge(ack, project="projects/p", exactly_once=True)
    later = clock.now() + timedelta(milliseconds=1)
    async with paused(log.database, before="UPDATE cursors") as claiming:
        claim = asyncio.create_task(log.claim(10, connection=claiming, ordered=True, exactly_once=True, now=later))
        await claiming.reached.wait()
        again = asyncio.create_task(acks.acknowledge(ack, project="projects/p", exactly_once=True))
        await until_waiting(log.database)
        claiming.go.set()
        assert (await claim).deliveries == [()]
    assert not await again
    assert not await acks.acknowledge(ack, project="projects/p", exactly_once=True)
    await tasks.close()
