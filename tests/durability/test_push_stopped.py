"""A process that is stopped between claiming a message and knowing that it did."""

import asyncio
import uuid
from collections.abc import Callable

import httpx
import psycopg
import pytest

from tests.fixtures.broker import BrokerProcess, Rest, eventually
from tests.fixtures.push_sink import PushSink

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
        httpx.AsyncClient(base_url=broker.url, timeout=60) as client,
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

        async def settled() -> bool:
            position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
            return int(position["undeliveredMessages"]) == 0

        await eventually(settled)
        await asyncio.sleep(0.5)  # another one would have come
    assert len(await push_sink.requests(path)) == 1


async def _is_waiting(database_url: str) -> bool:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        [count] = await (await connection.execute(query)).fetchone() or (0,)
        return bool(count)
