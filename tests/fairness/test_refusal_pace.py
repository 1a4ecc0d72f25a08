"""Who is refused, and calls again at once, is answered at a pace (E4, M1)."""

import asyncio

import grpc
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.fairness.refusal_pace import AT_ONCE, MOST_SECONDS, REFUSALS_A_SECOND, RefusalPace
from broker.features.quotas.connections import Connections
from broker.features.quotas.quota import ProjectQuotas
from broker.features.quotas.quotas import Quotas
from broker.model.errors import QuotaExceeded
from tests.fixtures.broker import Rest, eventually
from tests.fixtures.in_process import running_in_process

_P = "projects/p"


def test_some_refusals_are_told_at_once_and_more_at_a_pace_of_each_project() -> None:
    now = 1_000.0
    pace = RefusalPace(ticks=lambda: now)
    assert [pace.delay(_P) for _ in range(AT_ONCE + 1)] == pytest.approx([0.0] * (AT_ONCE + 1), abs=1e-9)
    assert [pace.delay(_P) for _ in range(3)] == pytest.approx([n / REFUSALS_A_SECOND for n in (1, 2, 3)])
    assert pace.delay("projects/other") == 0
    now += 10
    assert pace.delay(_P) == 0


def test_nobody_waits_for_long_however_many_are_refused() -> None:
    now = 1_000.0
    pace = RefusalPace(ticks=lambda: now)
    for _ in range(1_000):
        assert pace.delay(_P) <= MOST_SECONDS + 1e-6
    assert pace.delay(_P) >= MOST_SECONDS / 2
    now += MOST_SECONDS + 1
    pace.forget()
    assert pace.delay(_P) == 0


async def test_what_a_quota_refuses_waits_its_turn_and_what_passes_does_not(database: Database) -> None:
    limits = ProjectQuotas({"publishMessages": 0, "subscribeMessages": 1})
    quotas = Quotas(database, DatabaseClock(database), defaults=limits, ticks=lambda: 1_000.0)
    refusals = [
        asyncio.create_task(quotas.check(quotas.publishing(_P, ""), _P)) for _ in range(int(REFUSALS_A_SECOND) * 2)
    ]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reported = [task.done() for task in refusals]
    assert reported[:AT_ONCE] == [True] * AT_ONCE
    assert not reported[-1]
    assert await quotas.check(quotas.subscribing(_P, ""), _P) == 1_000.0
    with pytest.raises(QuotaExceeded):
        await refusals[-1]
    await asyncio.gather(*refusals, return_exceptions=True)


async def test_refused_connections_wait_their_turn_as_well() -> None:
    connections = Connections({_P: 0}.get)
    refusals = [asyncio.create_task(connections.open(_P)) for _ in range(int(REFUSALS_A_SECOND) * 2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert refusals[0].done()
    assert not refusals[-1].done()
    assert {type(error) for error in await asyncio.gather(*refusals, return_exceptions=True)} == {QuotaExceeded}


class _Told:
    """A pace that is always the same, and knows who was asked about."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.of: list[str] = []
        self._seconds = seconds

    def delay(self, of: str, /) -> float:
        self.of.append(of)
        return self._seconds


async def test_errors_of_both_apis_have_a_pace_of_the_project_and_of_the_address_and_answers_have_none(
    database_url: str,
) -> None:
    broker = Broker(AppConfig(database_url=database_url, pool_size=4))
    reported = broker.calls.pace = _Told()
    async with running_in_process(broker) as client:
        rest = Rest(client, _P)
        await rest.create_topic()
        await rest.publish("m")
        assert reported.of == []
        assert await rest.error("POST", rest.topic("none") + ":publish", {"messages": [{"data": "bQ=="}]})
        assert await rest.error("POST", rest.topic() + ":publish", {"messages": "wrong"})
        assert await rest.error("GET", "no/such/path")
        assert reported.of == [_P, "127.0.0.1"] * 2 + ["no/such", "127.0.0.1"]
        del reported.of[:]
        target = f"{client.base_url.host}:{client.base_url.port}"
        async with grpc.aio.insecure_channel(target) as channel:
            topic = b"projects/p/topics/none"
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/google.pubsub.v1.Publisher/GetTopic")(b"\x0a%c%b" % (len(topic), topic))
            assert reported.of == [_P, "127.0.0.1"]
            with pytest.raises(grpc.aio.AioRpcError):
                async for _ in channel.stream_stream("/google.pubsub.v1.Subscriber/StreamingPull")(iter([b""])):
                    pass
            assert reported.of[3:] == ["127.0.0.1"]


async def test_an_error_waits_and_a_call_that_is_fine_does_not(database_url: str) -> None:
    broker = Broker(AppConfig(database_url=database_url, pool_size=4))
    reported = broker.calls.pace = _Told(seconds=3.0)
    async with running_in_process(broker) as client:
        rest = Rest(client, _P)
        await rest.create_topic()
        refused = asyncio.create_task(rest.error("GET", rest.topic("none")))
        await eventually(lambda: reported.of)
        await rest.publish("m")
        assert not refused.done()
        assert (await refused)[0] == "NOT_FOUND"
