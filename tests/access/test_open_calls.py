"""The gRPC API, and what is open for long: a stream or a pull ends soon after its credential."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import grpc
import httpx
import pytest
from google.pubsub_v1 import types

from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import PATIENCE_SECONDS, Json, eventually

PUBLISHER, SUBSCRIBER = "/google.pubsub.v1.Publisher/", "/google.pubsub.v1.Subscriber/"


def _metadata(shown: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name.lower(), value) for name, value in shown.items())


class _Grpc:
    def __init__(self, broker: Guarded) -> None:
        self.channel = grpc.aio.insecure_channel(broker.client.base_url.netloc.decode())

    async def list_topics(self, project: str, shown: dict[str, str]) -> bytes:
        request = types.ListTopicsRequest(project=project)
        call: Any = self.channel.unary_unary(f"{PUBLISHER}ListTopics")
        answer: bytes = await call(types.ListTopicsRequest.serialize(request), metadata=_metadata(shown))
        return answer

    def stream(self, subscription: str, shown: dict[str, str]) -> Any:
        call: Any = self.channel.stream_stream(f"{SUBSCRIBER}StreamingPull")(metadata=_metadata(shown))
        self.first = types.StreamingPullRequest.serialize(
            types.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=10)
        )
        return call

    def pull(self, subscription: str, shown: dict[str, str]) -> Any:
        request = types.PullRequest(subscription=subscription, max_messages=1)
        call: Any = self.channel.unary_unary(f"{SUBSCRIBER}Pull")
        return call(types.PullRequest.serialize(request), metadata=_metadata(shown))


@pytest.fixture
async def client(broker: Guarded) -> AsyncIterator[_Grpc]:
    client = _Grpc(broker)
    yield client
    await client.channel.close()
    await asyncio.sleep(0)  # the broker hears of it before the loop ends


async def _subscription(broker: Guarded) -> str:
    name = f"{broker.project}/subscriptions/sub"
    await broker.ok("PUT", f"{broker.project}/topics/topic", {})
    await broker.ok("PUT", name, {"topic": f"{broker.project}/topics/topic"})
    return name


async def test_over_grpc_a_call_shows_the_same_and_is_told_the_same(broker: Guarded, client: _Grpc) -> None:
    key: Json = await broker.ok("POST", f"{broker.project}/apiKeys", {"roles": ["roles/pubsub.viewer"]})
    for shown in (broker.bearer(), {"X-Goog-Api-Key": key["keyString"]}):
        await client.list_topics(broker.project, shown)
    for shown in ({}, {"Authorization": "Bearer x"}, {"X-Goog-Api-Key": "brk-x"}):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.list_topics(broker.project, shown)
        assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
        trailers = dict(refused.value.trailing_metadata() or ())
        assert trailers["www-authenticate"] == 'Bearer realm="pubsub-broker"'
        assert b"google.rpc.ErrorInfo" in trailers["grpc-status-details-bin"]


async def test_grpcs_health_is_open(client: _Grpc) -> None:
    call: Any = client.channel.unary_unary("/grpc.health.v1.Health/Check")
    assert await call(b"") == b"\x08\x01"


async def test_a_stream_without_a_credential_does_not_open(broker: Guarded, client: _Grpc) -> None:
    name = await _subscription(broker)
    stream = client.stream(name, {})
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


async def test_what_is_open_ends_with_its_key_and_the_rest_goes_on(broker: Guarded, client: _Grpc) -> None:
    name = await _subscription(broker)
    key = await broker.key(await broker.account())
    revoked, stays = client.stream(name, broker.bearer(key)), client.stream(name, broker.bearer())
    for stream in (revoked, stays):
        await stream.write(client.first)
    grpc_pull = client.pull(name, broker.bearer(key))
    rest_pull = asyncio.create_task(
        broker.call("POST", f"{name}:pull", {"maxMessages": 1}, headers=broker.bearer(key))
    )
    await _until_held(broker, 4)
    await broker.ok("DELETE", key["name"])
    for call in (revoked.read(), grpc_pull):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call
        assert ended.value.code() == grpc.StatusCode.UNAUTHENTICATED
    response = await rest_pull
    assert response.status_code == 401
    assert response.json()["error"]["details"][0]["reason"] == "ACCESS_TOKEN_REVOKED"
    await broker.ok("POST", f"{broker.project}/topics/topic:publish", {"messages": [{"data": "aGk="}]})
    received = types.StreamingPullResponse.deserialize(await stays.read())
    assert [one.message.data for one in received.received_messages] == [b"hi"]
    stays.cancel()


@pytest.mark.parametrize("what", ["topics/topic", "subscriptions/sub"])
async def test_a_tail_ends_with_the_key_of_who_reads_it(broker: Guarded, what: str) -> None:
    name = await _subscription(broker)
    body = {"subscription": {"extensions": {"journal": {"mode": "ALL"}}}, "updateMask": "extensions"}
    await broker.ok("PATCH", name, body)
    key = await broker.key(await broker.account())
    url = f"/v1/{broker.project}/{what}:tail"
    async with broker.client.stream("GET", url, headers=broker.bearer(key)) as response:
        pieces = response.aiter_bytes()
        assert (response.status_code, await anext(pieces)) == (200, b": alive\n\n")
        await broker.ok("DELETE", key["name"])
        with pytest.raises(httpx.TransportError):  # cut off: the reader sees that there would have been more
            async with asyncio.timeout(PATIENCE_SECONDS):
                [_ async for _ in pieces]


async def test_what_is_open_ends_with_its_token_so_that_clients_call_again_with_a_new_one(
    broker: Guarded, client: _Grpc
) -> None:
    name = await _subscription(broker)
    shown = broker.bearer()
    await client.list_topics(broker.project, shown)  # it is known from now on
    broker.clock.ahead = timedelta(hours=2)
    stream = client.stream(name, shown)  # it ends before its first request: one that is sent then may meet the end
    for call in (stream.read(), client.pull(name, shown)):
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await call
        assert ended.value.code() == grpc.StatusCode.UNAVAILABLE
        assert "has expired" in str(ended.value.details())
    pulled = await broker.call("POST", f"{name}:pull", {"maxMessages": 1}, headers=shown)
    assert (pulled.status_code, pulled.json()["error"]["status"]) == (503, "UNAVAILABLE")


async def test_what_is_open_ends_when_its_key_is_deleted_at_another_process(clone: Callable[[], Any]) -> None:
    with clone() as database_url:
        async with guarded(database_url) as here, guarded(database_url) as there:
            client = _Grpc(here)
            name = await _subscription(here)
            key = await here.key(await here.account())
            stream = client.stream(name, here.bearer(key))
            await stream.write(client.first)
            await _until_held(here, 1)
            await there.ok("DELETE", key["name"])
            with pytest.raises(grpc.aio.AioRpcError) as ended:
                await stream.read()
            assert ended.value.code() == grpc.StatusCode.UNAUTHENTICATED
            await client.channel.close()
            await asyncio.sleep(0)  # the broker hears of it before the loop ends


async def _until_held(broker: Guarded, count: int) -> None:
    gate = broker.broker.gate
    assert gate is not None
    await eventually(lambda: len(gate._open) >= count)
