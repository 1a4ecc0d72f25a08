"""kill -9 in the middle of a publish+pull load: of the broker, of PostgreSQL, of one broker of two."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.durability.workload import ACK_DEADLINE_SECONDS, Workload
from tests.fixtures.broker import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

SEED = 20240611


async def _load_for_a_while(workload: Workload) -> None:
    """To a moment that the seed chooses."""
    dice = random.Random(SEED)
    await workload.until(answered=dice.randint(500, 3000), acked=dice.randint(300, 1000))
    await asyncio.sleep(dice.uniform(0, 0.05))  # somewhere within a call


async def test_nothing_is_lost_and_no_ack_forgotten_when_the_broker_is_killed(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    workload = Workload([broker.url], seed=SEED, leave=0.05)
    await workload.create()
    async with workload.running():
        await _load_for_a_while(workload)
        workload.fault()
        await asyncio.to_thread(broker.kill)
    history = workload.history
    assert history.failures, "nobody noticed"
    again = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), "--port", "0")
    workload.urls = [again.url]
    await workload.drain()
    history.check_complete()


async def test_the_broker_outlives_postgres_and_nothing_is_lost(start_broker: StartBroker, data_dir: Path) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0")
    (worker,) = broker.workers()
    workload = Workload([broker.url], seed=SEED)
    await workload.create()
    async with workload.running():
        await _load_for_a_while(workload)
        postmaster = broker.postmaster()
        workload.fault()
        for process in (postmaster, *postmaster.children()):
            process.kill()
        await workload.until(answered=300, acked=300)  # by itself
    history = workload.history
    assert set(history.failures) == {"UNAVAILABLE"}
    assert broker.workers() == [worker]
    await workload.drain()
    history.check_complete()


@pytest.mark.slow
async def test_of_two_brokers_one_is_killed_and_the_other_takes_over(
    start_broker: StartBroker, database_url: str
) -> None:
    brokers = [start_broker("--database-url", database_url, "--port", "0") for _ in range(2)]
    workload = Workload([broker.url for broker in brokers], seed=SEED)
    await workload.create()
    history = workload.history
    async with workload.running(publishers=4, pullers=4):
        await _load_for_a_while(workload)
        held, kept = await workload.hold(brokers[1].url), await workload.hold(brokers[1].url)
        workload.fault()
        await asyncio.to_thread(brokers[1].kill)
        workload.urls = [brokers[0].url]
        await workload.acknowledge(brokers[0].url, held)  # any broker takes the acks of another
        await workload.until(answered=300, acked=300)
    assert "UNAVAILABLE" not in history.failures
    await workload.drain()
    history.check_complete()
    assert {m["message"]["messageId"] for m in kept} <= {r.message_id for r in history.delivered_again()}
    for received in history.delivered_again():
        # It was out to a client of the killed broker, whose ack could not be answered.
        first = min(r.received_at for rs in history.received for r in rs if r.message_id == received.message_id)
        assert first <= history.fault_at + 1, received
        assert received.received_at > first + ACK_DEADLINE_SECONDS - 1, received
