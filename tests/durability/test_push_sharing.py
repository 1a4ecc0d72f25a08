"""A8, A13: several processes, and several brokers on one database, push what is published through any of them."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, message, text
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes, new_project, pushed

SUBSCRIPTIONS = 12  # so that each of three processes delivers to some


@pytest.mark.slow
async def test_brokers_on_one_database_push_each_message_once(
    start_broker: Callable[..., BrokerProcess], database_url: str, push_sink: PushSink
) -> None:
    """Created, published, switched and limited through either of them; no process tells the others by mouth."""
    first = start_broker("--database-url", database_url, "--port", "0", "--workers", "2")
    second = start_broker("--database-url", database_url, "--port", "0")
    project = new_project()
    async with (
        httpx.AsyncClient(base_url=first.url, timeout=60, verify=NO_TLS) as one,
        httpx.AsyncClient(base_url=second.url, timeout=60, verify=NO_TLS) as other,
    ):
        sides = [Pushes(Rest(client, project), push_sink) for client in (one, other)]
        await sides[0].rest.create_topic()
        paths = [await sides[n % 2].subscribe(name=f"sub{n}") for n in range(SUBSCRIPTIONS)]
        ordered = await sides[1].subscribe(name="ordered", enableMessageOrdering=True)
        await publish(sides)
        for path in paths:
            assert sorted(await sides[0].texts(path, 80)) == sorted(str(n) for n in range(80))
        assert await sides[0].texts(ordered, 80) == [str(n) for n in range(80)]
        await check_switch(sides, paths[0])
        for path in paths[1:]:
            assert len(await push_sink.requests(path)) == 82, "and nothing twice since"
        await check_limit(sides)


async def publish(sides: list[Pushes]) -> None:
    for n in range(80):
        await sides[n % 2].rest.publish(message(str(n), orderingKey="key"))


async def check_switch(sides: list[Pushes], path: str) -> None:
    """What one broker is told goes for the other at once."""
    await sides[0].modify({}, "sub0")
    await sides[1].rest.publish("while it is pulled")
    received = await sides[1].rest.pull("sub0", wait=True)
    assert [text(m) for m in received] == ["while it is pulled"]
    await sides[0].rest.acknowledge(received, "sub0")
    await sides[1].push_to(path, "sub0")
    await sides[0].rest.publish("pushed again")
    assert pushed((await sides[0].wait_for(path, 81))[-1]) == "pushed again"
    await asyncio.sleep(0.5)
    assert len(await sides[0].sink.requests(path)) == 81


async def check_limit(sides: list[Pushes]) -> None:
    """By now all processes know of each other: before, a limit may be used twice (decision 0010)."""
    push = {"push": {"maxOutstandingRequests": 1}}
    path = await sides[0].subscribe("/delay/0.005", name="limited", extensions=push)
    await publish(sides)
    await sides[0].wait_for(path, 80)
    assert (await sides[0].sink.count(path))["most_at_once"] == 1
