"""The database fails over to a standby: brokers find the new primary, and what was answered is not lost (L2)."""

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest

from broker.db.schema import migrations
from tests.durability.workload import Workload
from tests.fixtures.broker import NO_TLS, BrokerProcess
from tests.fixtures.standby import Pair, standing_by

StartBroker = Callable[..., BrokerProcess]

SEED = 1124
_CANCEL = b"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.fixture
def pair() -> Iterator[Pair]:
    with standing_by() as pair:
        migrations.upgrade(pair.url)
        yield pair


@pytest.mark.slow
@pytest.mark.parametrize(
    "promotions", [pytest.param(3, marks=pytest.mark.ci), pytest.param(100, marks=pytest.mark.timeout(3_600))]
)
async def test_nothing_that_was_answered_is_lost(start_broker: StartBroker, pair: Pair, promotions: int) -> None:
    broker = start_broker("--database-url", pair.url, "--port", "0")
    (worker,) = broker.workers()
    workload = Workload([broker.url], seed=SEED)
    await workload.create()
    async with workload.running(publishers=1, pullers=2):  # what is copied to each new standby grows
        for number in range(promotions):
            await workload.until(answered=300, acked=100)
            if not number:
                workload.fault()
            await asyncio.to_thread(pair.fail_over)
            await workload.until(answered=100, acked=100)
            await asyncio.to_thread(pair.follow)
    history = workload.history
    assert set(history.failures) == {"UNAVAILABLE"}, history.failures
    assert broker.workers() == [worker]
    await workload.drain()
    history.check_complete()


@pytest.mark.slow
@pytest.mark.ci
async def test_what_the_standby_does_not_have_is_not_answered(start_broker: StartBroker, pair: Pair) -> None:
    broker = start_broker("--database-url", pair.url, "--port", "0")
    topic = "/v1/projects/failover/topics/orders"
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        (await client.put(topic)).raise_for_status()
        await asyncio.to_thread(pair.standby.kill)
        body = {"messages": [{"data": "eA=="}]}
        calls = [client.post(f"{topic}:publish", json=body), client.put("/v1/projects/failover/topics/others")]
        answers = [asyncio.create_task(call) for call in calls]
        while not all(
            answer.done() for answer in answers
        ):  # an operator sees sessions that hang, and ends their wait
            await asyncio.to_thread(pair.primary.ask, _CANCEL)
            await asyncio.sleep(0.05)
        for answer in answers:
            assert (await answer).status_code == 503, (await answer).text
        await asyncio.to_thread(pair.follow)
        (await client.post(f"{topic}:publish", json=body)).raise_for_status()
