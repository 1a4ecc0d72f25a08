"""A8: the process that pushes dies under load; another one takes over."""

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence

import httpx
import psutil
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message
from tests.fixtures.push_sink import PushSink, Received

SETTLING_SECONDS = 2.0  # a request that ended so long before the kill has been acked durably
SUBSCRIPTIONS = 8  # so that each of two processes delivers to some


@pytest.mark.slow
async def test_a_killed_sender_loses_nothing_and_repeats_only_what_was_in_flight(
    start_broker: Callable[..., BrokerProcess], database_url: str, push_sink: PushSink
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0", "--workers", "2")
    name = uuid.uuid4().hex
    paths = [f"/delay/0.01/{name}/{n}" for n in range(SUBSCRIPTIONS)]
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, f"projects/{name}")
        await rest.create_topic()
        for n, path in enumerate(paths):
            config = {"pushEndpoint": push_sink.url + path}
            await rest.create_subscription(f"sub{n}", pushConfig=config, ackDeadlineSeconds=10)
        published: list[str] = []
        stop = asyncio.Event()
        load = asyncio.create_task(publish(rest, published, stop))
        await eventually(lambda: len(published) > 300)
        killed_at = kill_a_worker(broker)
        count = len(published)
        await eventually(lambda: len(published) > count + 300)
        stop.set()
        unknown = await load
    for path in paths:
        received = await everything(push_sink, path, published)
        check(received, published, unknown, killed_at)


async def publish(rest: Rest, published: list[str], stop: asyncio.Event) -> bool:
    """Publish until told to stop; returns whether some publish was not answered."""
    unknown = False
    while not stop.is_set():
        try:
            published += await rest.publish(*[message(str(n)) for n in range(5)])
        except (httpx.HTTPError, AssertionError):  # its process was the one
            unknown = True
        await asyncio.sleep(0.01)
    return unknown


def kill_a_worker(broker: BrokerProcess) -> float:
    victim: psutil.Process = broker.workers()[0]
    victim.kill()
    victim.wait()
    return time.monotonic()


async def everything(push_sink: PushSink, path: str, published: Sequence[str]) -> list[Received]:
    """All requests, once each published message is among them and nothing comes any more."""

    async def arrived() -> list[Received]:
        received = await push_sink.requests(path)
        return received if set(published) <= {message_id(request) for request in received} else []

    received: list[Received] = await eventually(arrived)
    return received


def message_id(request: Received) -> str:
    found: str = request.json["message"]["messageId"]
    return found


def check(received: Sequence[Received], published: Sequence[str], unknown: bool, killed_at: float) -> None:
    first: dict[str, Received] = {}
    for request in received:
        earlier = first.setdefault(message_id(request), request)
        if earlier is not request:
            assert earlier.time < killed_at, "delivered by the dead process"
            assert earlier.ended is None or earlier.ended > killed_at - SETTLING_SECONDS, "and not settled"
    assert unknown or set(first) == set(published), "nothing that was not published"
