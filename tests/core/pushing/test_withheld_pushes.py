"""Pushes to addresses that the settings deny: they wait, and cost no attempt, until they are allowed (E2)."""

import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from tests.fixtures.broker import Json, Rest, eventually
from tests.fixtures.in_process import running_in_process
from tests.fixtures.push_sink import PushSink
from tests.fixtures.pushes import Pushes

DENY = {"push_private_addresses": "deny"}
HERE = DENY | {"push_allowed_networks": "127.0.0.0/8"}
DENIED = "Not allowed: the address of 127.0.0.1 is loopback; the address policy of this broker denies it."
DEAD = {"deadLetterTopic": "projects/p/topics/dead", "maxDeliveryAttempts": 1}


@asynccontextmanager
async def running(database_url: str, push_sink: PushSink, **config: Any) -> AsyncIterator[tuple[Pushes, Broker]]:
    broker = Broker(AppConfig(database_url=database_url, min_delivery_attempts=1, **config))
    async with running_in_process(broker) as client:
        yield Pushes(Rest(client, "projects/p"), push_sink), broker


async def _subscribe(pushes: Pushes, host: str = "127.0.0.1") -> str:
    """With a dead-letter topic to which one attempt leads; returns its path of the sink."""
    for topic in ("topic", "dead"):
        await pushes.rest.create_topic(topic)
    await pushes.rest.create_subscription("dead-sub", "dead")
    path = pushes.path()
    url = pushes.sink.url.replace("127.0.0.1", host) + path
    await pushes.rest.create_subscription("sub", pushConfig={"pushEndpoint": url}, deadLetterPolicy=DEAD)
    return path


async def _is(pushes: Pushes, state: str, reason: str | None = None) -> Json:
    async def is_it() -> Json | None:
        status = await pushes.status()
        return status if (status["state"], status.get("pausedReason")) == (state, reason) else None

    found: Json = await eventually(is_it)
    return found


async def test_messages_for_a_denied_endpoint_wait_uncounted_and_go_out_once_it_is_allowed(
    database_url: str, push_sink: PushSink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(database_url, push_sink, **DENY) as (pushes, _):
        path = await _subscribe(pushes)
        await pushes.rest.publish("1", "2", "3")
        status = await _is(pushes, "PAUSED", DENIED)
        assert status["circuitBreaker"]["consecutiveFailures"] == 0
        assert await pushes.failures() == []
        assert (await pushes.rest.ok("GET", pushes.rest.subscription()))["state"] == "RESOURCE_ERROR"
        name = pushes.rest.subscription()
        assert f"pushes of {name} are paused until they are allowed: {DENIED[:-1]}" in caplog.text

        await pushes.rest.ok("POST", f"{name}:resumePush")
        await pushes.rest.publish("4")
        await _is(pushes, "PAUSED", DENIED)
    async with running(database_url, push_sink, **HERE) as (pushes, _):
        await pushes.until_taken(path, "1", "2", "3", "4")
        await _is(pushes, "ACTIVE")
        assert {request.json["deliveryAttempt"] for request in await push_sink.requests(path)} == {1}
        assert await pushes.rest.pull("dead-sub") == []
        assert f"pushes of {name} are resumed" in caplog.text


async def test_a_pause_of_somebody_else_is_not_ended_because_the_endpoint_is_allowed(
    database_url: str, push_sink: PushSink
) -> None:
    async with running(database_url, push_sink, **DENY) as (pushes, _):
        await _subscribe(pushes)
        await pushes.rest.publish("1")
        await _is(pushes, "PAUSED", DENIED)
        pause = f"{pushes.rest.subscription()}:pausePush"
        code, text = await pushes.rest.error("POST", pause, {"reason": DENIED})
        assert (code, "Not allowed: " in text) == ("INVALID_ARGUMENT", True)
        await pushes.rest.ok("POST", pause, {"reason": "Ada looks at it."})
    async with running(database_url, push_sink) as (pushes, broker):
        await eventually(lambda: broker.pusher._endpoints._read_at)
        await broker.pusher._withheld.run_once()
        await _is(pushes, "PAUSED", "Ada looks at it.")


async def test_a_name_that_gets_another_address_is_pushed_to_without_a_start(
    database_url: str, push_sink: PushSink
) -> None:
    host = f"{uuid.uuid4().hex}.example"
    async with running(database_url, push_sink, **HERE) as (pushes, broker):
        client = broker.pusher._client
        assert client is not None
        client._resolver._known[host] = (inf, ["10.0.0.1"])
        path = await _subscribe(pushes, host)
        await pushes.rest.publish("1")
        await _is(pushes, "PAUSED", DENIED.replace("127.0.0.1", host).replace("loopback", "private"))
        await broker.pusher._withheld.run_once()
        assert (await pushes.status())["state"] == "PAUSED"
        client._resolver._known[host] = (inf, ["10.0.0.1", "127.0.0.1"])
        broker.pusher._withheld.check_soon()
        await pushes.until_taken(path, "1")
