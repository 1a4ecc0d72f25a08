"""Large requests and answers over gRPC, in parallel, slow to come or slow to be taken.

Memory is bounded by the budgets of the process, what finds no room is told when to come back, and small calls are
served meanwhile.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import grpc
import httpx
import pytest

from broker.api.generated import messages
from broker.net.http2.frames import Code, Flag, Kind, frame, reset, window_update
from tests.api.grpc.wire import Peer, packed
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.limits.conftest import MEGABYTE, Memory, good_client
from tests.limits.crowd import RESOURCE_EXHAUSTED, call_headers, connect

pytestmark = [pytest.mark.slow, pytest.mark.ci]

SETTINGS = {"BROKER_REQUEST_MEMORY_MB": "64"}
CAPACITY = (
    900 * MEGABYTE
)  # budgets of 64 MB each, with the copies that are made on the way; 40 requests would take 2 GB


@pytest.fixture
async def rest(broker: BrokerProcess, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=broker.url, timeout=120, verify=NO_TLS) as client:
        rest = Rest(client, project)
        await rest.create_topic()
        await rest.create_subscription()
        yield rest


def _publish(rest: Rest, size: int) -> bytes:
    request: bytes = messages.PublishRequest(
        topic=rest.topic(), messages=[{"data": b"x" * size}]
    ).SerializeToString()
    return request


class PatientClient:
    """Publishes small messages; comes again when it is told to.  `stored`: how many it was told that they are."""

    def __init__(self, rest: Rest) -> None:
        self.stored = 0
        self._rest = rest
        self.running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        publish = f"{self._rest.topic('small')}:publish"
        while True:
            answer = await self._rest.call("POST", publish, {"messages": [{"data": "eA=="}]})
            assert answer.status_code in (200, 429, 503), answer.text
            assert answer.status_code == 200 or "retryDelay" in answer.text
            self.stored += answer.status_code == 200
            await asyncio.sleep(0.02)

    def has_stored(self, count: int = 1) -> bool:
        """Raises what ended the client, if something did."""
        if self.running.done():
            self.running.result()
        return self.stored >= count


@asynccontextmanager
async def patient_client(rest: Rest) -> AsyncIterator[PatientClient]:
    """Runs beside the block, and is served after it; an attack goes on until it was served in the block, too."""
    await rest.create_topic("small")
    client = PatientClient(rest)
    try:
        yield client
        before = client.stored
        await eventually(lambda: client.has_stored(before + 2))
    finally:
        client.running.cancel()
        await asyncio.gather(client.running, return_exceptions=True)


@pytest.mark.slow
async def test_forty_publishes_of_ten_megabytes_at_once(broker: BrokerProcess, rest: Rest) -> None:
    request = _publish(rest, 9_900_000)
    options = [("grpc.use_local_subchannel_pool", 1)]

    async def publish() -> grpc.RpcError | None:
        def call() -> grpc.RpcError | None:
            with grpc.insecure_channel(httpx.URL(broker.url).netloc.decode(), options=options) as channel:
                try:
                    channel.unary_unary("/google.pubsub.v1.Publisher/Publish")(request, timeout=100)
                except grpc.RpcError as error:
                    return error
                return None

        return await asyncio.to_thread(call)

    outcomes: list[grpc.RpcError | None] = []
    async with Memory(broker) as memory, patient_client(rest) as client:
        while not (outcomes and client.has_stored()):
            outcomes += await asyncio.gather(*[publish() for _ in range(40)])
    refused = [error for error in outcomes if error is not None]
    assert {error.code() for error in refused} <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for error in refused:
        assert "grpc-status-details-bin" in dict(error.trailing_metadata())  # RetryInfo
    assert len(refused) < len(outcomes)
    stored = 0
    while received := await rest.pull(max_messages=1):
        await rest.acknowledge(received)
        stored += 1
    assert stored == len(outcomes) - len(refused)
    assert memory.grown < CAPACITY


async def _begin(broker: BrokerProcess, request: bytes, size: int) -> tuple[Peer, int]:
    """Send so much of a Publish; with the grpc-status if it is refused, else -1."""
    peer = await connect(broker.url)
    body = packed(request)[:size]
    peer.send(peer.headers(1, call_headers("Publisher/Publish")))
    for at in range(0, size, 300_000):
        for part in range(at, min(at + 300_000, size), 16_000):
            peer.send(frame(Kind.DATA, 0, 1, body[part : min(part + 16_000, at + 300_000, size)]))
        await peer.writer.drain()
        peer.send(frame(Kind.PING, 0, 0, b"received"))
        await peer.read_until(lambda f: f.kind == Kind.PING and bool(f.flags & Flag.ACK))
        for read in peer.frames:
            if read.kind == Kind.HEADERS:
                fields = {bytes(k): bytes(v) for k, v in peer.decoder.decode(read.payload, raw=True)}
                return peer, int(fields[b"grpc-status"])
        peer.frames.clear()
    return peer, -1


async def test_senders_who_do_not_end_are_bounded_and_leave_capacity(broker: BrokerProcess, rest: Rest) -> None:
    request = _publish(rest, 9_900_000)
    async with Memory(broker) as memory, good_client(broker):
        begun = [await _begin(broker, request, 9_000_000) for _ in range(20)]
        statuses = [status for _, status in begun]
        assert 3 <= statuses.count(-1) < 8  # three quarters of the budget
        assert set(statuses) == {-1, RESOURCE_EXHAUSTED}
        await rest.publish("small ones find room")
        for peer, _ in begun:
            peer.writer.close()
        await eventually(lambda: _is_capacity(broker, request))
    assert memory.grown < CAPACITY


async def _is_capacity(broker: BrokerProcess, request: bytes) -> bool:
    peer, status = await _begin(broker, request, 9_000_000)
    peer.writer.close()
    return status == -1


async def test_readers_who_do_not_take_their_answers_are_bounded(broker: BrokerProcess, rest: Rest) -> None:
    """Pulls and streams with windows of nothing: what the process may hold for them is held, and not more."""
    for _ in range(30):
        await rest.publish("x" * 3_000_000)
    pull = messages.PullRequest(subscription=rest.subscription(), max_messages=1).SerializeToString()
    stream = messages.StreamingPullRequest(
        subscription=rest.subscription(), stream_ack_deadline_seconds=600
    ).SerializeToString()
    async with Memory(broker) as memory:
        readers = [await connect(broker.url, s4=0) for _ in range(20)]
        for number, peer in enumerate(readers):
            method, request = ("Pull", pull) if number % 2 else ("StreamingPull", stream)
            for stream_id in (1, 3, 5, 7):
                end = Flag.END_STREAM if number % 2 else 0
                peer.send(
                    peer.headers(stream_id, call_headers(f"Subscriber/{method}")),
                    frame(Kind.DATA, end, stream_id, packed(request)),
                )
        refusals: set[int] = set()

        async def is_refused() -> bool:
            """A pull of somebody else."""
            answer = await rest.call("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
            refusals.add(answer.status_code)
            return answer.status_code == 503

        await eventually(is_refused)
        await rest.publish("publishes go on")
        for peer in readers:
            peer.writer.close()

        async def is_served() -> bool:
            answer = await rest.call("POST", f"{rest.subscription()}:pull", {"maxMessages": 1})
            return bool(answer.status_code == 200 and answer.json())

        await eventually(is_served)
    assert memory.grown < CAPACITY


async def test_requests_that_are_taken_back_do_not_pile_up(broker: BrokerProcess, rest: Rest) -> None:
    """A client that sends a large request and resets it, again and again: it has been paid for until it is done."""
    request = _publish(rest, 900_000)

    async def send(client: PatientClient) -> None:
        peer = await connect(broker.url)
        body = packed(request)
        frames = [frame(Kind.DATA, 0, 0, body[at : at + 16_000]) for at in range(0, len(body), 16_000)]
        with contextlib.closing(peer.writer), contextlib.suppress(ConnectionError, EOFError):
            for stream_id in count(1, 2):
                if stream_id > 160 and client.has_stored():
                    break
                peer.send(peer.headers(stream_id, call_headers("Publisher/Publish")))
                for number, part in enumerate(frames):
                    end = Flag.END_STREAM if number == len(frames) - 1 else 0
                    peer.send(struct.pack(">IBI", len(part) - 9 << 8, end, stream_id), part[9:])
                peer.send(reset(stream_id, Code.CANCEL))
                await peer.writer.drain()
            await peer.alive()

    async with Memory(broker) as memory, patient_client(rest) as client:
        await asyncio.gather(*[send(client) for _ in range(4)])
    assert memory.grown < CAPACITY
    await rest.ok("DELETE", rest.topic())


async def test_a_stream_whose_client_widens_no_window_does_not_hold_up_another(
    broker: BrokerProcess, rest: Rest
) -> None:
    stream = messages.StreamingPullRequest(
        subscription=rest.subscription(), stream_ack_deadline_seconds=600
    ).SerializeToString()
    stuck, other = await connect(broker.url, s4=0), await connect(broker.url)
    for peer in (stuck, other):
        peer.send(peer.headers(1, call_headers("Subscriber/StreamingPull")), frame(Kind.DATA, 0, 1, packed(stream)))
        assert await peer.alive()
    other.send(window_update(0, 1_000_000))
    received = asyncio.create_task(other.next_of(Kind.DATA, 1))
    while not received.done():  # the first may all go to the one that asked first
        await rest.publish("message")
        await asyncio.wait({received}, timeout=0.1)
    await received
    stuck.writer.close()
    other.writer.close()
