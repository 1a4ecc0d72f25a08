"""Calls that a broker which stops cannot finish in its grace are answered all the same: try again."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import httpx
import psycopg
import pytest

from broker.api.generated import messages
from tests.cli.processes import faults
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.fixtures.waiting import waiting_sessions

StartBroker = Callable[..., BrokerProcess]


def _publish_over_grpc(broker: BrokerProcess, topic: str) -> None:
    request = messages.PublishRequest(topic=topic)
    request.messages.add(data=b"a")
    with grpc.insecure_channel(broker.url.removeprefix("http://")) as channel:
        channel.unary_unary("/google.pubsub.v1.Publisher/Publish")(request.SerializeToString(), timeout=60)


async def _two_wait(watch: psycopg.AsyncConnection[Any]) -> bool:
    return len(await waiting_sessions(watch)) == 2


async def test_calls_that_are_cut_off_are_answered_unavailable(
    start_broker: StartBroker, database_url: str
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        for name in ("rest", "grpc"):
            await rest.create_topic(name)
            await rest.call("POST", f"{rest.topic(name)}:publish", {"messages": [{"data": "YQ=="}]})
        async with await psycopg.AsyncConnection.connect(database_url) as locked:
            await locked.execute("UPDATE shards SET head = head")
            body = {"messages": [{"data": "YQ=="}]}
            by_rest = asyncio.create_task(rest.call("POST", f"{rest.topic('rest')}:publish", body))
            by_grpc = asyncio.create_task(asyncio.to_thread(_publish_over_grpc, broker, rest.topic("grpc")))
            await eventually(lambda: _two_wait(locked))
            broker.process.terminate()
            answer = await by_rest
            with pytest.raises(grpc.RpcError) as refused:
                await by_grpc
    assert (answer.status_code, answer.json()["error"]["status"]) == (503, "UNAVAILABLE")
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert "The broker stops" in refused.value.details()
    assert broker.stop() == 0
    assert faults(broker) == []
