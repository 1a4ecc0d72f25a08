"""REST and gRPC on one port: the first bytes of a connection decide."""

import asyncio
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import grpc
import pytest

from broker.api.generated import messages
from broker.net.http2.frames import PREFACE, Flag, Kind, frame, settings
from tests.api.grpc.wire import REQUEST, Peer, packed
from tests.fixtures.broker import Json, Rest
from tests.fixtures.grpc import GrpcRest, channel_to

REST_REQUEST = b"GET /v1/projects/none/topics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def caller(broker_url: str) -> Iterator[socket.socket]:
    url = urlsplit(broker_url)
    with socket.create_connection((url.hostname, url.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


@pytest.fixture
def over_grpc(broker_url: str, rest: Rest) -> Iterator[GrpcRest]:
    """The same project as `rest`."""
    with channel_to(broker_url) as channel:
        yield GrpcRest(channel, rest.project)


def _read_to(caller: socket.socket, end: bytes) -> bytes:
    received = b""
    while end not in received:
        part = caller.recv(65_536)
        assert part, received
        received += part
    return received


async def test_what_one_api_stores_the_other_hands_out(rest: Rest, over_grpc: GrpcRest) -> None:
    await rest.create_topic(labels={"made": "over-rest"})
    assert (await over_grpc.ok("GET", rest.topic()))["labels"] == {"made": "over-rest"}
    await over_grpc.create_subscription(labels={"made": "over-grpc"})
    assert (await rest.ok("GET", rest.subscription()))["labels"] == {"made": "over-grpc"}
    [first] = await rest.publish("over REST")
    [second] = await over_grpc.publish("over gRPC")
    received = [*await over_grpc.pull(max_messages=1), *await rest.pull(max_messages=1)]
    assert [m["message"]["messageId"] for m in received] == [first, second]
    assert len({m["message"]["publishTime"][-1] for m in received}) == 1
    await over_grpc.acknowledge(received[1:])
    await rest.acknowledge(received[:1])
    assert await over_grpc.pull() == []


async def test_a_message_is_the_same_over_both_apis(rest: Rest, over_grpc: GrpcRest) -> None:
    await rest.create_topic()
    fields = {"deadLetterPolicy": {"deadLetterTopic": rest.topic()}, "enableMessageOrdering": True}
    for name in ("sub-a", "sub-b"):
        await rest.create_subscription(name, **fields)
    await rest.publish({"data": "AAECAw==", "attributes": {"é": "ü\n", "b": ""}, "orderingKey": "ключ"})
    [over_rest], [other] = await rest.pull("sub-a"), await over_grpc.pull("sub-b")
    assert over_rest.pop("ackId") != other.pop("ackId")
    assert over_rest == other
    assert over_rest["deliveryAttempt"] == 1


async def test_a_resource_is_the_same_over_both_apis(rest: Rest, over_grpc: GrpcRest) -> None:
    policy = {"allowedPersistenceRegions": ["europe-west1"]}
    topic = await over_grpc.create_topic(
        labels={"a": "b"}, messageRetentionDuration="3600.5s", messageStoragePolicy=policy, kmsKeyName="k"
    )
    assert await rest.ok("GET", rest.topic()) == topic == await over_grpc.ok("GET", rest.topic())
    push = {"pushEndpoint": "http://127.0.0.1:9/", "noWrapper": {"writeMetadata": True}, "attributes": {"a": "b"}}
    subscription = await over_grpc.create_subscription(
        pushConfig=push,
        expirationPolicy={},
        retryPolicy={"minimumBackoff": "1.5s"},
        deadLetterPolicy={"deadLetterTopic": rest.topic(), "maxDeliveryAttempts": 9},
        filter="attributes:a",
        retainAckedMessages=True,
        enableMessageOrdering=True,
        messageRetentionDuration="700s",
    )
    assert (
        await rest.ok("GET", rest.subscription()) == subscription == await over_grpc.ok("GET", rest.subscription())
    )
    snapshot = await over_grpc.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    assert await rest.ok("GET", f"{rest.project}/snapshots/snap") == snapshot


async def test_what_google_s_messages_have_no_place_for_is_left_alone_over_grpc(
    rest: Rest, over_grpc: GrpcRest
) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(extensions={"onePerOrderingKey": True})
    changes: list[Json] = [{"labels": {"a": "b"}}, {"pushConfig": {}}, {"expirationPolicy": {"ttl": "864000s"}}]
    for change in changes:
        mask = ",".join(change).replace("expirationPolicy", "expirationPolicy.ttl")
        await over_grpc.ok("PATCH", rest.subscription(), {"subscription": change, "updateMask": mask})
    changed = await rest.ok("GET", rest.subscription())
    assert changed["extensions"] == created["extensions"]
    assert (changed["labels"], changed["expirationPolicy"]) == ({"a": "b"}, {"ttl": "864000s"})
    body = {"subscription": {}, "updateMask": "extensions"}
    code, message = await over_grpc.error("PATCH", rest.subscription(), body)
    assert (code, "'extensions' is not a known Subscription field" in message) == ("INVALID_ARGUMENT", True)
    assert await rest.ok("GET", rest.subscription()) == changed


async def test_page_tokens_of_one_api_are_good_at_the_other(rest: Rest, over_grpc: GrpcRest) -> None:
    names = [rest.topic(f"topic-{number}") for number in range(3)]
    for number in range(3):
        await rest.create_topic(f"topic-{number}")
    first = await rest.ok("GET", f"{rest.project}/topics", params={"pageSize": 2})
    second = await over_grpc.ok(
        "GET", f"{rest.project}/topics", params={"pageSize": 2, "pageToken": first["nextPageToken"]}
    )
    assert [t["name"] for t in (*first["topics"], *second["topics"])] == names
    assert "nextPageToken" not in second


def test_a_kept_connection_of_rest_goes_on_being_one(caller: socket.socket) -> None:
    for _ in range(5):
        caller.sendall(REST_REQUEST)
        assert _read_to(caller, b"{}\n").startswith(b"HTTP/1.1 200 ")


def test_a_rest_request_may_arrive_byte_by_byte(caller: socket.socket) -> None:
    for byte in REST_REQUEST:
        caller.sendall(bytes([byte]))
    assert _read_to(caller, b"{}\n").startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("first", [b"P", b"PRI * HTTP/2.0\r\n", PREFACE[:-1]], ids=len)
def test_what_only_begins_like_the_preface_is_http1(caller: socket.socket, first: bytes) -> None:
    caller.sendall(first)
    caller.sendall(b"X")
    caller.sendall(b"\r\n\r\n")
    assert caller.recv(65_536).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("garbage", [b"\x16\x03\x01\x02\x00\x01", b"\0" * 100, b"hello\r\n\r\n"], ids=repr)
def test_garbage_is_answered_and_the_connection_closed(caller: socket.socket, garbage: bytes) -> None:
    caller.sendall(garbage)
    received = b""
    while part := caller.recv(65_536):
        received += part
    assert received.startswith(b"HTTP/1.1 400 ")


async def test_a_preface_may_arrive_byte_by_byte(broker_url: str) -> None:
    url = urlsplit(broker_url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    peer = Peer(reader, writer)
    for byte in PREFACE + settings({}):
        peer.send(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.001)
    headers = [(n, b"/grpc.health.v1.Health/Check" if n == b":path" else v) for n, v in REQUEST]
    peer.send(peer.headers(1, headers), frame(Kind.DATA, Flag.END_STREAM, 1, packed(b"")))
    answer = await peer.answer(1)
    assert messages.HealthCheckResponse.FromString(answer.message).status == 1
    writer.close()


async def test_a_connection_that_says_nothing_disturbs_nobody(caller: socket.socket, rest: Rest) -> None:
    await rest.create_topic()
    caller.sendall(REST_REQUEST)
    assert _read_to(caller, b"{}\n")


def test_a_connection_that_ends_within_the_preface_is_no_fault(caller: socket.socket) -> None:
    """The fixture of the broker looks for faults in its log."""
    caller.sendall(PREFACE[:10])
    caller.shutdown(socket.SHUT_WR)
    assert caller.recv(1) == b""


def test_a_broker_says_over_grpc_that_it_is_healthy(broker_url: str) -> None:
    def check(channel: grpc.Channel, service: str) -> int:
        request = messages.HealthCheckRequest(service=service).SerializeToString()
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(request, timeout=20)
        return int(messages.HealthCheckResponse.FromString(answer).status)

    with channel_to(broker_url) as channel:
        assert check(channel, "") == check(channel, "google.pubsub.v1.Publisher") == 1
        with pytest.raises(grpc.RpcError) as unknown:
            check(channel, "something.Else")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=20)
        assert messages.HealthCheckResponse.FromString(next(watch)).status == 1
        watch.cancel()


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_a_broker_describes_itself_to_tools(broker_url: str, version: str) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    requests = [
        messages.ServerReflectionRequest(list_services=""),
        messages.ServerReflectionRequest(file_containing_symbol="google.pubsub.v1.Subscriber.Pull"),
        messages.ServerReflectionRequest(file_by_filename="google/pubsub/v1/schema.proto"),
        messages.ServerReflectionRequest(file_containing_symbol="no.such.Thing"),
    ]
    with channel_to(broker_url) as channel:
        method = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        answers = [
            messages.ServerReflectionResponse.FromString(answer)
            for answer in method(iter([request.SerializeToString() for request in requests]), timeout=20)
        ]
    services, symbol, file, unknown = answers
    assert {"google.pubsub.v1.Publisher", "google.pubsub.v1.Subscriber"} <= {
        service.name for service in services.list_services_response.service
    }
    found = [FileDescriptorProto.FromString(f) for f in symbol.file_descriptor_response.file_descriptor_proto]
    assert found[0].name == "google/pubsub/v1/pubsub.proto"
    assert {dependency for f in found for dependency in f.dependency} <= {f.name for f in found}
    assert file.file_descriptor_response.file_descriptor_proto
    assert unknown.error_response.error_code == 5
