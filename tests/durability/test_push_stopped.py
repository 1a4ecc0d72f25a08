"""A8: a process that stands still for a while, in the middle of a claim or of requests."""

import asyncio
import uuid
from collections.abc import Callable

import httpx
import psycopg
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message
from tests.fixtures.push_sink import PushSink
from tests.fixtures.waiting import waiting_sessions

DEADLINE_SECONDS = 10.0
LEASE_SECONDS = 14.0  # of a push: its ack deadline, and some


@pytest.mark.slow
async def test_what_was_claimed_before_a_long_stop_is_not_sent_when_its_lease_is_over(
    start_broker: Callable[..., BrokerProcess], database_url: str, push_sink: PushSink
) -> None:
    """It may be with another process by then, or be acked, and later messages of its key be out."""
    broker = start_broker("--database-url", database_url, "--port", "0", "--workers", "1")
    [worker] = broker.workers()
    path = f"/status/200/{uuid.uuid4().hex}"
    async with (
        httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as other,
    ):
        rest = Rest(client, "projects/stopped")
        await rest.create_topic()
        await rest.create_subscription(pushConfig={"pushEndpoint": push_sink.url + path}, ackDeadlineSeconds=10)
        async with other.transaction():
            await other.execute("LOCK TABLE delivery_attempts IN SHARE MODE")  # no claim gets beyond its last step
            await rest.publish("hello")
            await eventually(lambda: _is_waiting(database_url))
            worker.suspend()
        try:
            await asyncio.sleep(LEASE_SECONDS + 1)
        finally:
            worker.resume()
        await push_sink.wait_for(path, 1)
        await eventually(lambda: _nothing_is_left(rest))
        await asyncio.sleep(0.5)  # another one would have come
    assert len(await push_sink.requests(path)) == 1


@pytest.mark.slow
async def test_answers_that_came_during_a_stop_count(
    start_broker: Callable[..., BrokerProcess], database_url: str, push_sink: PushSink
) -> None:
    """They came in time, though this process learns of them and of their deadline at once."""
    broker = start_broker("--database-url", database_url, "--port", "0", "--workers", "1")
    [worker] = broker.workers()
    gate = uuid.uuid4().hex
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/stopped")
        await rest.create_topic()
        config = {"pushEndpoint": f"{push_sink.url}/gate/{gate}"}
        await rest.create_subscription(pushConfig=config, ackDeadlineSeconds=10)
        await rest.publish(*[message(str(n)) for n in range(8)])
        await push_sink.wait_for(f"/gate/{gate}", 8)
        worker.suspend()
        try:
            await push_sink.open_gate(gate)
            await asyncio.sleep(DEADLINE_SECONDS + 1)
        finally:
            worker.resume()
        await eventually(lambda: _nothing_is_left(rest))
        assert await rest.ok("GET", f"{rest.subscription()}:pushFailures") == {}
    assert len(await push_sink.requests(f"/gate/{gate}")) == 8


async def _nothing_is_left(rest: Rest) -> bool:
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    return int(position["undeliveredMessages"]) == 0


async def _is_waiting(database_url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        return bool(await waiting_sessions(connection))
