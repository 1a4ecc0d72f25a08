"""What a caller without permission costs: every route and method, with the most expensive body that fits.

Counted is what the process has received, decompressed and handed to a decoder of a request before it is refused.
"""

import asyncio
import gzip
import json
import random
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio
from google.protobuf.json_format import ParseDict

from broker.api.generated.messages import request_of
from broker.api.grpc.messages import BEGINNING_BYTES
from broker.api.limits.admission import MAX_FREE_BYTES, admission_of
from broker.api.limits.request_memory import RequestMemory
from broker.api.rpc import Rpc, Size
from broker.model.errors import ResourceExhausted
from broker.net.http2.frames import Flag, Kind, frame
from broker.net.limits.payload import MAX_PAYLOAD_BYTES
from tests.api.grpc.wire import REQUEST, Answer, Peer, until
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json
from tests.fixtures.registered import METHODS, ROUTES
from tests.limits.crowd import connect
from tests.limits.raw import calling, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

OK, INVALID_ARGUMENT, PERMISSION_DENIED, UNAVAILABLE, UNAUTHENTICATED = 0, 3, 7, 14, 16
TOPIC, OTHER = "projects/guarded/topics/orders", "projects/guarded/topics/other"
BEGUN = 262_144  # bytes that are sent of a body that is not compressed; the rest would be longer than any answer
EMPTY_ELEMENTS = b"\x12\x00" * 6_000_000  # of the second field, which is a list in the requests of hot methods


@dataclass(frozen=True)
class _Call:
    """`path` of REST, or of gRPC where there is no HTTP `method`."""

    row: Rpc
    path: str
    method: str = ""

    @property
    def is_free(self) -> bool:
        """Whether it needs no permission."""
        return not self.row.needs.all

    @property
    def rpc(self) -> str:
        return self.row.name

    @property
    def is_open(self) -> bool:
        """Whether it needs no credential."""
        return self.row.needs.is_open

    def __str__(self) -> str:
        return f"{self.method or 'gRPC'} {self.path}"


def _calls() -> Iterator[_Call]:
    for route in ROUTES:
        yield _Call(route.rpc, "/v1/" + _path(route.path), route.method)
    for method in METHODS:
        yield _Call(method.rpc, method.path.decode())


def _path(shape: str) -> str:
    resource, colon, verb = shape.partition(":")
    names = iter(["guarded", "orders", "third"])
    return "/".join(next(names) if part == "*" else part for part in resource.split("/")) + colon + verb


CALLS = list(_calls())


@dataclass(frozen=True)
class _Cost:
    received: int
    unpacked: int
    decoded: int


@dataclass
class _Process:
    broker: Guarded
    credentials: dict[str, dict[str, str]]

    @property
    def url(self) -> str:
        return str(self.broker.client.base_url)

    def cost(self) -> _Cost:
        memory = self.broker.broker.requests
        return _Cost(memory.received, memory.unpacked, memory.decoded)

    async def send(self, call: _Call, credential: str, *, packed: bool) -> tuple[int, _Cost]:
        """The status of its answer, and what it cost."""
        before, headers = self.cost(), self.credentials[credential]
        status = await (self._by_rest if call.method else self._by_grpc)(call, headers, packed=packed)
        after = self.cost()
        parts = ("received", "unpacked", "decoded")
        return status, _Cost(*(getattr(after, part) - getattr(before, part) for part in parts))

    async def _by_rest(self, call: _Call, headers: dict[str, str], *, packed: bool) -> int:
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if packed:
            head = request(call.method, call.path, *lines, "Content-Encoding: gzip", body=PACKED_JSON)
            parts = [head]
        else:
            head = request(call.method, call.path, *lines, f"Content-Length: {MAX_PAYLOAD_BYTES}")
            parts = [head, JSON[:BEGUN]]
        async with calling(self.url) as caller:
            caller.send(*parts)
            return (await caller.answer()).status

    async def _by_grpc(self, call: _Call, headers: dict[str, str], *, packed: bool) -> int:
        message = _request(call.rpc) + EMPTY_ELEMENTS
        message = message[: MAX_PAYLOAD_BYTES if call.rpc == "Publisher.Publish" else MAX_FREE_BYTES // 2]
        if packed:
            message = gzip.compress(message, compresslevel=9)
        peer = await connect(self.url)
        answer = await _answered(peer, call.path, headers, message, packed=packed)
        peer.writer.close()
        return answer.status


JSON = b'{"messages":[' + b"{}," * (MAX_PAYLOAD_BYTES // 3 - 10) + b"{}]}"
PACKED_JSON = gzip.compress(JSON, compresslevel=9)


def _request(rpc: str, name: str = TOPIC) -> bytes:
    """The beginning of a request that names its resource as serializers do: first."""
    service = rpc.partition(".")[0]
    if service not in ("Publisher", "Subscriber", "SchemaService", "IAMPolicy"):
        return b""
    message = request_of(rpc)()
    first = message.DESCRIPTOR.fields_by_number[1]
    wanted = name.replace("/topics/", "/schemas/") if service == "SchemaService" else name
    if service == "Subscriber":
        wanted = name.replace("/topics/", "/subscriptions/")
    if first.name in ("project", "parent"):
        wanted = "projects/guarded"
    if "snapshot" in rpc.lower() and (first.name in ("snapshot", "name")):
        wanted = name.replace("/topics/", "/snapshots/")
    if rpc == "Publisher.DetachSubscription":
        wanted = name.replace("/topics/", "/subscriptions/")
    ParseDict({first.name: wanted if first.message_type is None else {"name": wanted}}, message)
    encoded: bytes = message.SerializeToString()
    return encoded


async def _answered(
    peer: Peer, path: str, headers: dict[str, str], message: bytes, *, packed: bool, ends: bool = True
) -> Answer:
    """The answer to a call whose message is sent as far as its window goes."""
    fields = [(name, path.encode() if name == b":path" else value) for name, value in REQUEST]
    fields += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if packed:
        fields.append((b"grpc-encoding", b"gzip"))
    body = struct.pack(">BI", packed, len(message)) + message
    sent = body if len(body) <= BEGUN else body[:BEGUN]
    peer.send(peer.headers(1, fields))
    for at in range(0, len(sent), 16_000):
        last = Flag.END_STREAM if ends and sent is body and at + 16_000 >= len(sent) else 0
        peer.send(frame(Kind.DATA, last, 1, sent[at : at + 16_000]))
    if path == "/grpc.health.v1.Health/Watch":  # it is served, and does not end
        await peer.next_of(Kind.DATA, 1)
        return Answer({b"grpc-status": b"0"})
    return await peer.answer(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process(clone: Callable[[], Any]) -> AsyncIterator[_Process]:
    with clone() as database_url:
        async with guarded(database_url) as broker:
            await broker.ok("PUT", TOPIC)
            await broker.ok("PUT", OTHER)
            await broker.ok("PUT", "projects/guarded/subscriptions/orders", {"topic": TOPIC})
            key = await broker.key(await broker.account(role=""))
            credentials = {
                "none": {},
                "bad": broker.bearer(key, aud="https://elsewhere.example/"),
                "without a role": broker.bearer(key),
                "administrator": broker.bearer(),
            }
            yield _Process(broker, credentials)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("credential", ["none", "bad"])
async def test_no_call_of_an_unknown_caller_is_decompressed_or_decoded(
    process: _Process, credential: str, packed: bool
) -> None:
    for call in CALLS:
        status, cost = await process.send(call, credential, packed=packed)
        if call.is_open:
            assert cost.unpacked <= MAX_FREE_BYTES + 1, call
            assert cost.decoded <= MAX_FREE_BYTES, call
        else:
            assert status == (401 if call.method else UNAUTHENTICATED), call
            assert (cost.unpacked, cost.decoded) == (0, 0), call
            assert cost.received <= (0 if call.method else BEGUN + 5), call
    assert process.broker.broker.requests.unadmitted == 0


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
async def test_no_call_of_a_caller_without_a_role_is_decompressed_or_decoded(
    process: _Process, packed: bool
) -> None:
    for call in CALLS:
        status, cost = await process.send(call, "without a role", packed=packed)
        if call.is_free:
            assert cost.unpacked <= MAX_FREE_BYTES + 1, call
            assert cost.decoded <= MAX_FREE_BYTES, call
        else:
            assert status == (403 if call.method else PERMISSION_DENIED), call
            assert (cost.unpacked, cost.decoded) == (0, 0), call
            assert cost.received <= (0 if call.method else BEGUN + 5), call
    assert process.broker.broker.requests.unadmitted == 0


async def test_a_request_that_names_its_resource_last_is_read_through_and_not_decoded(process: _Process) -> None:
    """Within the first fields; behind more of them than it may have it is refused without a look at the rest."""
    before = process.cost()
    peer = await connect(process.url)
    last = b"\x12\x82\x02" + b"x" * 258 + b"\x12\x82\xc0\x01" + b"y" * 24_578 + _request("Publisher.Publish")
    headers = process.credentials["without a role"]
    answer = await _answered(peer, "/google.pubsub.v1.Publisher/Publish", headers, last, packed=False)
    assert answer.status == PERMISSION_DENIED
    assert TOPIC.encode() in answer.headers[b"grpc-message"]
    peer.writer.close()
    peer = await connect(process.url)
    many = (b"\x12\x00" * 20_000) + _request("Publisher.Publish")
    answer = await _answered(peer, "/google.pubsub.v1.Publisher/Publish", headers, many, packed=False)
    assert answer.status == INVALID_ARGUMENT
    assert b"before the name of its resource" in answer.headers[b"grpc-message"]
    peer.writer.close()
    assert process.cost() == replace(before, received=process.cost().received)


async def test_a_compressed_request_names_its_resource_in_its_first_bytes(process: _Process) -> None:
    before = process.cost()
    late = b"\x12\x80\x40" + b"x" * 8_192 + _request("Publisher.Publish")
    peer = await connect(process.url)
    headers = process.credentials["without a role"]
    answer = await _answered(peer, "/google.pubsub.v1.Publisher/Publish", headers, gzip.compress(late), packed=True)
    assert answer.status == INVALID_ARGUMENT
    assert str(BEGINNING_BYTES).encode() in answer.headers[b"grpc-message"]
    peer.writer.close()
    assert process.cost() == replace(before, received=process.cost().received)


async def test_who_may_publish_may_do_so_compressed_or_in_any_order_of_the_fields(process: _Process) -> None:
    headers, path = process.credentials["administrator"], "/google.pubsub.v1.Publisher/Publish"
    messages = request_of("Publisher.Publish")(
        messages=[{"data": bytes(range(256)) * 800, "attributes": {"a": "b"}}]
    ).SerializeToString()
    name = _request("Publisher.Publish")
    for message, packed in ((gzip.compress(name + messages), True), (messages + name, False)):
        peer = await connect(process.url)
        answer = await _answered(peer, path, headers, message, packed=packed)
        assert answer.status == OK, answer
        peer.writer.close()


async def test_the_name_that_is_decoded_is_the_one_that_is_allowed(process: _Process) -> None:
    """The last of a field counts for the decoder: whoever may publish to one topic names it first, in vain."""
    broker = process.broker
    key = await broker.key(await broker.account("publisher-of-one", role=""))
    binding = {"role": "roles/pubsub.publisher", "members": [f"serviceAccount:{key['client_email']}"]}
    await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {"bindings": [binding]}})
    messages = request_of("Publisher.Publish")(messages=[{"data": b"x"}]).SerializeToString()
    own, other = _request("Publisher.Publish"), _request("Publisher.Publish", OTHER)
    statuses = []
    for message in (own + messages, own + messages + other, other + messages):
        peer = await connect(process.url)
        path = "/google.pubsub.v1.Publisher/Publish"
        statuses.append((await _answered(peer, path, broker.bearer(key), message, packed=False)).status)
        peer.writer.close()
    assert statuses == [OK, PERMISSION_DENIED, PERMISSION_DENIED]


async def test_a_publish_whose_role_was_taken_away_while_it_arrived_is_refused(process: _Process) -> None:
    broker = process.broker
    key = await broker.key(await broker.account("late-publisher", role=""))
    member = f"serviceAccount:{key['client_email']}"
    policy = {"bindings": [{"role": "roles/pubsub.publisher", "members": [member]}]}
    await broker.ok("POST", f"{OTHER}:setIamPolicy", {"policy": policy})
    message = _request("Publisher.Publish", OTHER)
    message += request_of("Publisher.Publish")(messages=[{"data": b"x" * 9_000}]).SerializeToString()
    body = struct.pack(">BI", 0, len(message)) + message
    path, requests = b"/google.pubsub.v1.Publisher/Publish", broker.broker.requests
    fields = [(name, path if name == b":path" else value) for name, value in REQUEST]
    fields += [(name.lower().encode(), value.encode()) for name, value in broker.bearer(key).items()]
    peer = await connect(process.url)
    peer.send(peer.headers(1, fields), frame(Kind.DATA, 0, 1, body[:8_000]))
    await until(lambda: requests.arriving == 8_000 and requests.unadmitted == 0)
    await broker.ok("POST", f"{OTHER}:setIamPolicy", {"policy": {}})
    peer.send(frame(Kind.DATA, Flag.END_STREAM, 1, body[8_000:]))
    assert (await peer.answer(1)).status == PERMISSION_DENIED
    peer.writer.close()


async def test_what_callers_without_a_permission_do_not_complete_has_a_small_share(process: _Process) -> None:
    """Their requests end before the first bytes that name a resource.  Others' find room meanwhile."""
    memory, headers = process.broker.broker.requests, process.credentials["without a role"]
    fields = [
        (name, b"/google.pubsub.v1.Publisher/Publish" if name == b":path" else value) for name, value in REQUEST
    ]
    fields += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    begun = struct.pack(">BI", 0, 10_000_000) + b"\x12" * (BEGINNING_BYTES - 1)
    peers = [await connect(process.url) for _ in range(8)]
    for peer in peers:
        for number in range(900):
            peer.send(peer.headers(2 * number + 1, fields), frame(Kind.DATA, 0, 2 * number + 1, begun))
        await peer.alive()
    assert memory.limit // 32 < memory.unadmitted <= memory.limit // 16
    assert memory.held <= memory.limit // 16
    messages = {"messages": [{"data": "eHh4" * 250_000}]}
    assert (await process.broker.call("POST", f"{TOPIC}:publish", messages)).status_code == 200
    peer = await connect(process.url)
    message = (
        _request("Publisher.Publish")
        + request_of("Publisher.Publish")(messages=[{"data": b"x" * 100_000}]).SerializeToString()
    )
    answer = await _answered(
        peer, "/google.pubsub.v1.Publisher/Publish", process.credentials["administrator"], message, packed=False
    )
    assert answer.status == OK
    for each in (*peers, peer):
        each.writer.close()
    await until(lambda: (memory.unadmitted, memory.held) == (0, 0))


async def test_unfinished_requests_of_strangers_are_not_kept(process: _Process) -> None:
    memory = process.broker.broker.requests
    peer = await connect(process.url)
    body = struct.pack(">BI", 0, 10_000_000) + _request("Publisher.Publish") + b"x" * 100_000
    for number, credential in enumerate(("none", "bad", "without a role")):
        fields = [
            (name, b"/google.pubsub.v1.Publisher/Publish" if name == b":path" else value) for name, value in REQUEST
        ]
        fields += [(k.lower().encode(), v.encode()) for k, v in process.credentials[credential].items()]
        peer.send(peer.headers(2 * number + 1, fields))
        for at in range(0, len(body), 16_000):
            peer.send(frame(Kind.DATA, 0, 2 * number + 1, body[at : at + 16_000]))
        answer = await peer.answer(2 * number + 1)
        assert answer.status == (PERMISSION_DENIED if credential == "without a role" else UNAUTHENTICATED)
    await until(lambda: (memory.unadmitted, memory.held) == (0, 0))
    peer.writer.close()


async def test_a_health_check_is_read_no_further_than_any_call_that_needs_no_permission(process: _Process) -> None:
    before = process.cost()
    bomb = gzip.compress(b"\x0a\x80\x80\x80\x05" + b"x" * 10_485_760, compresslevel=9)
    peer = await connect(process.url)
    answer = await _answered(peer, "/grpc.health.v1.Health/Check", {}, bomb, packed=True)
    assert answer.status == INVALID_ARGUMENT
    assert process.cost().unpacked - before.unpacked <= MAX_FREE_BYTES + 1
    assert process.cost().decoded == before.decoded
    peer.writer.close()


async def test_permissions_are_tested_in_small_requests_only(process: _Process) -> None:
    broker, headers = process.broker, process.credentials["without a role"]
    permissions: Json = {"permissions": ["pubsub.topics.publish"] * 100}
    assert (
        await broker.call("POST", f"{TOPIC}:testIamPermissions", permissions, headers=headers)
    ).status_code == 200
    before = process.cost()
    large = json.dumps({"permissions": ["x" * 100] * 2_000}).encode()
    answer = await broker.client.post(f"/v1/{TOPIC}:testIamPermissions", content=large, headers=headers)
    assert answer.status_code == 400
    assert str(MAX_FREE_BYTES) in answer.text
    assert process.cost().decoded == before.decoded


async def test_the_event_loop_is_free_while_a_large_body_is_decompressed(process: _Process) -> None:
    """Ten megabytes take some twenty-five steps, and others have their turns in between."""
    randbytes = random.Random(5).randbytes
    data = b"".join(randbytes(256) * 200 for _ in range(190))  # 60 times as large as compressed
    message = request_of("Publisher.Publish")(topic=TOPIC, messages=[{"data": data}]).SerializeToString()
    memory, headers = process.broker.broker.requests, process.credentials["administrator"]
    peer = await connect(process.url)
    path, compressed = "/google.pubsub.v1.Publisher/Publish", gzip.compress(message)
    unpacked, steps = memory.unpacked, 0
    answering = asyncio.create_task(_answered(peer, path, headers, compressed, packed=True))
    while not answering.done():
        await asyncio.sleep(0)
        if memory.unpacked != unpacked:
            unpacked, steps = memory.unpacked, steps + 1
    assert (await answering).status == OK
    assert steps > 15
    peer.writer.close()


async def test_what_one_caller_has_decompressed_at_one_time_is_bounded() -> None:
    """Whatever it sends over however many connections; others find room meanwhile."""
    memory = RequestMemory(256_000_000)
    publish = admission_of(Size.PUBLISH, memory)
    size, held = 10_000_000, 0
    while memory.unpack(("user:greedy@example.com",), size, own=0):
        held += size
    with pytest.raises(ResourceExhausted, match="compressed requests of user:greedy"):
        publish.unpack(memory, "user:greedy@example.com", size, own=0)
    assert memory.limit // 8 < held < memory.limit // 4
    publish.unpack(memory, "user:good@example.com", size, own=0)
    memory.give_back_unpacked(("user:greedy@example.com",), held)
    publish.unpack(memory, "user:greedy@example.com", size, own=0)


async def test_a_publish_of_more_elements_than_allowed_is_refused_before_it_is_decoded(process: _Process) -> None:
    before = process.cost()
    message = _request("Publisher.Publish") + b"\x12\x00" * 100_000
    peer = await connect(process.url)
    headers = process.credentials["administrator"]
    answer = await _answered(peer, "/google.pubsub.v1.Publisher/Publish", headers, message, packed=False)
    assert answer.status == INVALID_ARGUMENT
    assert b"messages has more than 1000 elements" in answer.headers[b"grpc-message"]
    assert process.cost().decoded == before.decoded
    peer.writer.close()


async def test_forms_of_unknown_callers_share_what_such_callers_have(clone: Callable[[], Any]) -> None:
    with clone() as database_url:
        async with guarded(database_url, request_memory_mb=1) as broker:
            memory, url = broker.broker.requests, str(broker.client.base_url)
            async with calling(url) as caller:
                caller.send(request("POST", "/token", "Content-Length: 60000"), b"assertion=" + b"x" * 39_990)
                await until(lambda: memory.unadmitted == 40_000)
                answer = await broker.client.post("/token", content=b"assertion=" + b"x" * 30_000)
                assert (answer.status_code, answer.json()["error"]) == (503, "temporarily_unavailable")
                assert memory.unadmitted == 40_000
            await until(lambda: memory.unadmitted == 0)
            answer = await broker.client.post("/token", content=b"assertion=" + b"x" * 30_000)
            assert answer.status_code == 400
