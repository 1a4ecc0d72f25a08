"""Ordered and exactly-once subscriptions under a load that does everything, while one broker of two is killed."""

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.durability.ordered_history import count_redeliveries
from tests.durability.ordered_workload import ACK_DEADLINE_SECONDS, OrderedWorkload
from tests.fixtures.broker import BrokerProcess

StartBroker = Callable[..., BrokerProcess]

SEED = 20250117


async def _load(start_broker: StartBroker, database_url: str, *, seed: int, seconds: float) -> OrderedWorkload:
    """Two brokers under load; every few seconds one of them is killed and started again."""

    def start() -> BrokerProcess:
        return start_broker("--database-url", database_url, "--port", "0", env={"BROKER_PULL_WAIT_SECONDS": "1"})

    dice = random.Random(seed)
    brokers = list(await asyncio.gather(*(asyncio.to_thread(start) for _ in range(2))))
    workload = OrderedWorkload([broker.url for broker in brokers], seed=seed)
    await workload.create()
    until = asyncio.get_running_loop().time() + seconds
    async with workload.running():
        while True:
            await asyncio.sleep(dice.uniform(1.5, 3))
            victim = brokers.pop(dice.randrange(2))
            await asyncio.to_thread(victim.kill)
            workload.urls = [brokers[0].url]
            brokers.append(await asyncio.to_thread(start))
            workload.urls = [broker.url for broker in brokers]
            left = until - asyncio.get_running_loop().time()
            workload.forgetful = left > ACK_DEADLINE_SECONDS
            await asyncio.sleep(max(0.0, min(left, ACK_DEADLINE_SECONDS / 2)))
            if not workload.forgetful:
                break
    return workload


def _check(workload: OrderedWorkload) -> None:
    history = workload.history
    history.check()
    assert set(workload.styles) >= {"ack", "nack the first", "nack one of the middle", "extend", "expire"}
    for subscription in history.subscriptions:
        assert len(subscription.texts) > 500, "hardly any load"
        assert count_redeliveries(subscription.responses) > 100, "hardly any redeliveries"


async def test_keys_keep_their_order_and_leases_hold_while_a_broker_is_killed(
    start_broker: StartBroker, database_url: str
) -> None:
    _check(await _load(start_broker, database_url, seed=SEED, seconds=9))


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_they_do_for_longer(start_broker: StartBroker, database_url: str, seed: int) -> None:
    _check(await _load(start_broker, database_url, seed=seed, seconds=75))
