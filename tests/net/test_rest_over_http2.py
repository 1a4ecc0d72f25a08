"""REST, and what surrounds it, over HTTP/2: with prior knowledge on the same port, and as TLS agrees on by ALPN."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.net.http2.frames import Code, Flag, Kind, frame
from broker.net.tls.material import ServerTls, TlsMaterial
from tests.api.grpc.wire import Peer
from tests.fixtures.broker import NO_TLS, PATIENCE_SECONDS, Json, Rest, message, text
from tests.fixtures.grpc import GrpcRest, channel_to
from tests.fixtures.in_process import running_in_process
from tests.fixtures.tls import localhost, trusting


@pytest.fixture
async def rest(broker_url: str, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=broker_url, timeout=60, verify=NO_TLS, http1=False, http2=True) as client:
        yield Rest(client, project)


Connect = Callable[..., Awaitable[Peer]]


@pytest.fixture
async def connect(rest: Rest) -> AsyncIterator[Connect]:
    """Peers that speak frames to the same broker.  They answer no PING: connect one when it is needed."""
    writers: list[asyncio.StreamWriter] = []

    async def connect(**options: int) -> Peer:
        url = rest.client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writers.append(writer)
        peer = Peer(reader, writer)
        peer.greet(**options)
        return peer

    yield connect
    for writer in writers:
        writer.close()


def _request(method: str, path: str, **headers: str) -> list[tuple[bytes, bytes]]:
    pseudo = {":method": method, ":scheme": "http", ":path": path, ":authority": "localhost"}
    return [(name.encode(), value.encode()) for name, value in (pseudo | headers).items()]


async def test_a_message_goes_its_whole_way_over_http2(rest: Rest) -> None:
    created = await rest.create_topic(labels={"over": "http2"})
    assert (await rest.call("GET", rest.topic())).http_version == "HTTP/2"
    assert await rest.ok("GET", rest.topic()) == created
    await rest.create_subscription()
    large = text(message("x" * 3_000_000))
    await rest.publish("small", {"data": large})
    received = await rest.pull()
    assert [each["message"]["data"] for each in received] == [message("small")["data"], large]
    await rest.acknowledge(received)
    assert await rest.pull() == []
    assert await rest.error("GET", rest.topic("none")) == ("NOT_FOUND", "Topic not found (resource=none).")
    assert (await rest.call("DELETE", rest.topic())).json() == {}


async def test_many_requests_share_a_connection_and_do_not_wait_for_each_other(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    waiting = asyncio.create_task(rest.pull(wait=True))
    ids = await asyncio.gather(*(rest.publish(f"message {number}") for number in range(100)))
    assert len({each for one in ids for each in one}) == 100
    assert await waiting


async def test_what_surrounds_the_api_is_served_as_well(rest: Rest) -> None:
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        over_2 = await rest.client.get(path)
        async with httpx.AsyncClient(base_url=rest.client.base_url, verify=NO_TLS) as client:
            over_1 = await client.get(path)
        assert (over_2.http_version, over_2.status_code) == ("HTTP/2", over_1.status_code), path
        assert over_2.headers["content-type"] == over_1.headers["content-type"]
    assert (await rest.client.head("/healthz")).content == b""
    assert (await rest.client.get("/nothing/there")).status_code == 404


async def test_grpc_and_rest_share_a_connection(rest: Rest, connect: Connect) -> None:
    await rest.create_topic()
    peer = await connect()
    path = "/google.pubsub.v1.Publisher/GetTopic"
    grpc_headers = _request("POST", path, te="trailers", **{"content-type": "application/grpc"})
    name = rest.topic().encode()
    body = b"\x00" + (len(name) + 2).to_bytes(4, "big") + b"\x0a" + bytes([len(name)]) + name
    peer.send(peer.headers(1, grpc_headers), frame(Kind.DATA, Flag.END_STREAM, 1, body))
    assert (await peer.answer(1)).status == 0
    peer.send(peer.headers(3, _request("GET", f"/v1/{rest.topic()}"), Flag.END_HEADERS | Flag.END_STREAM))
    answer = await peer.answer(3)
    assert answer.headers[b":status"] == b"200"
    assert json.loads(answer.body)["name"] == rest.topic()
    assert (answer.headers[b"content-length"], answer.trailers) == (str(len(answer.body)).encode(), {})


async def test_events_come_in_parts_and_end_with_the_reader(rest: Rest) -> None:
    await rest.create_topic()
    async with rest.client.stream("GET", f"/v1/{rest.topic()}:tail") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        assert "transfer-encoding" not in stream.headers
        lines = stream.aiter_lines()
        assert await anext(lines) == ": alive"
        await rest.publish("seen")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (line := await anext(lines)).startswith("data: "):
                pass
        assert json.loads(line.removeprefix("data: "))["data"] == message("seen")["data"]


async def test_a_page_of_another_origin_and_a_name_that_is_not_the_brokers_are_refused(rest: Rest) -> None:
    """The rules for web pages are those of HTTP/1.1: `:authority` is the Host."""
    assert (await rest.client.get("/healthz", headers={"Origin": "https://evil.example"})).status_code == 403
    assert (await rest.client.get("/healthz", headers={"Host": "evil.example"})).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("get", "/v1/projects/p/topics", {}),
        ("GET", "v1/projects/p/topics", {}),
        ("GET", "/v1/pro jects", {}),
        ("GET", "/v1/projects/p/topics\n", {}),
        ("GET", "/v1/projects/p/topics", {"x-line": "a\r\nb"}),
    ],
)
async def test_a_malformed_request_resets_its_stream_alone(
    connect: Connect, method: str, path: str, headers: dict[str, str]
) -> None:
    peer = await connect()
    peer.send(peer.headers(1, _request(method, path, **headers), Flag.END_HEADERS | Flag.END_STREAM))
    assert (await peer.answer(1)).reset == Code.PROTOCOL_ERROR
    peer.send(peer.headers(3, _request("GET", "/healthz"), Flag.END_HEADERS | Flag.END_STREAM))
    assert (await peer.answer(3)).headers[b":status"] == b"200"


async def test_a_body_that_is_too_large_is_refused_before_its_end(rest: Rest, connect: Connect) -> None:
    peer = await connect()
    headers = _request("POST", f"/v1/{rest.topic()}:publish", **{"content-length": "100000000"})
    peer.send(peer.headers(1, headers), frame(Kind.DATA, 0, 1, b"{"))
    answer = await peer.answer(1)
    assert answer.headers[b":status"] == b"400"
    assert json.loads(answer.body)["error"]["status"] == "INVALID_ARGUMENT"
    assert await peer.alive()


async def test_an_answer_waits_for_the_windows_of_its_reader(rest: Rest, connect: Connect) -> None:
    await rest.create_topic(labels={"a": "b"})
    peer = await connect(s4=10)  # INITIAL_WINDOW_SIZE
    peer.send(peer.headers(1, _request("GET", f"/v1/{rest.topic()}"), Flag.END_HEADERS | Flag.END_STREAM))
    assert len((await peer.next_of(Kind.DATA, 1)).payload) == 10
    peer.send(frame(Kind.WINDOW_UPDATE, 0, 1, (1_000_000).to_bytes(4, "big")))
    rest_of_it = await peer.next_of(Kind.DATA, 1)
    end = await peer.next_of(Kind.DATA, 1)
    assert (len(rest_of_it.payload) > 10, end.payload, end.ends_stream) == (True, b"", True)


async def test_a_pull_whose_stream_is_reset_gives_back_what_it_would_have_got(rest: Rest, connect: Connect) -> None:
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600)
    peer = await connect()
    pull = _request("POST", f"/v1/{rest.subscription()}:pull")
    peer.send(peer.headers(1, pull), frame(Kind.DATA, Flag.END_STREAM, 1, b'{"maxMessages": 1}'))
    assert await peer.alive()
    peer.send(frame(Kind.RST_STREAM, 0, 1, bytes(4)))
    assert await peer.alive()
    await rest.publish("for the other one")
    assert len(await rest.pull(wait=True)) == 1


async def test_rest_is_served_to_a_client_that_offers_nothing_but_http2_by_alpn(clone: Callable[[], Any]) -> None:
    tls = ServerTls(TlsMaterial(localhost().certificate, localhost().key))
    with clone() as database_url:
        broker = Broker(AppConfig(database_url=database_url, pool_size=4))
        async with running_in_process(broker, tls=tls) as over_1:
            made = await over_1.put("/v1/projects/demo/topics/over-tls", json={})
            assert (made.status_code, made.http_version) == (200, "HTTP/1.1")
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", over_1.base_url.port, ssl=trusting(alpn=["h2"]), server_hostname="localhost"
            )
            peer = Peer(reader, writer)
            peer.greet()
            get = _request("GET", "/v1/projects/demo/topics/over-tls")
            peer.send(peer.headers(1, get, Flag.END_HEADERS | Flag.END_STREAM))
            assert json.loads((await peer.answer(1)).body) == made.json()
            writer.close()


async def test_a_resource_is_the_same_over_grpc_and_over_rest_by_http2(rest: Rest, broker_url: str) -> None:
    with channel_to(broker_url) as channel:
        over_grpc = GrpcRest(channel, rest.project)
        created: Json = await over_grpc.create_topic(labels={"a": "b"})
        assert await rest.ok("GET", rest.topic()) == created


async def test_requests_of_a_connection_beyond_the_bound_are_refused_until_others_have_ended(
    clone: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those count whose callers have reset the stream: what they asked for goes on."""
    monkeypatch.setattr("broker.net.http2.exchange.MAX_RUNNING", 2)
    end = Flag.END_HEADERS | Flag.END_STREAM
    with clone() as database_url:
        broker = Broker(AppConfig(database_url=database_url, pool_size=4))
        async with running_in_process(broker) as client:
            for path, body in (
                ("topics/topic", {}),
                ("subscriptions/sub", {"topic": "projects/demo/topics/topic"}),
            ):
                assert (await client.put(f"/v1/projects/demo/{path}", json=body)).status_code == 200
            url = client.base_url
            reader, writer = await asyncio.open_connection(url.host, url.port)
            peer = Peer(reader, writer)
            peer.greet()
            for stream_id in (1, 3):
                pull = peer.headers(stream_id, _request("POST", "/v1/projects/demo/subscriptions/sub:pull"))
                peer.send(pull, frame(Kind.DATA, Flag.END_STREAM, stream_id, b'{"maxMessages": 1}'))
            peer.send(peer.headers(5, _request("GET", "/healthz"), end))
            assert (await peer.answer(5)).headers[b":status"] == b"503"
            broker.stop_waiting()
            for stream_id in (1, 3):
                assert (await peer.answer(stream_id)).headers[b":status"] == b"200"
            peer.send(peer.headers(7, _request("GET", "/healthz"), end))
            assert (await peer.answer(7)).headers[b":status"] == b"200"
            writer.close()
