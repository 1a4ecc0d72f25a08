"""A client that speaks HTTP/2 frame by frame, to break its rules; and an API for it, without a database."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import hpack

from broker.api.grpc.call import StreamingCall, UnaryCall
from broker.api.grpc.methods import Method
from broker.api.grpc.server import GrpcApi
from broker.api.limits.answer_memory import AnswerMemory
from broker.api.limits.hot_calls import HotCalls
from broker.api.limits.request_memory import RequestMemory
from broker.api.limits.resource_calls import ResourceCalls
from broker.api.logging.call_log import CallLog
from broker.api.permissions import NOTHING
from broker.api.row import PUBLISHER
from broker.api.rpc import Audit, Rpc, Size
from broker.api.rpc import Kind as CallKind
from broker.app.guard import make_address_turns
from broker.fairness.loop_turns import LoopTurns
from broker.fairness.resource_turns import ResourceTurns
from broker.net.http2.frames import HEAD, PREFACE, Code, Flag, Kind, frame, settings
from broker.observability.state_changes import StateChanges
from tests.fixtures.broker import PATIENCE_SECONDS
from tests.fixtures.tls import behind_tls, trusting

SERVICE = "test.Service"
REQUEST = [
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":path", b"/test.Service/Echo"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
]


def request_headers(method: str = "Echo", **extra: str) -> list[tuple[bytes, bytes]]:
    """The headers of a call; `grpc_timeout="1S"` adds one of that name.

    `method` is of SERVICE, or names its service, too.
    """
    path = f"/{method}" if "/" in method else f"/{SERVICE}/{method}"
    headers = [(name, path.encode() if name == b":path" else value) for name, value in REQUEST]
    return [*headers, *((name.replace("_", "-").encode(), value.encode()) for name, value in extra.items())]


def packed(message: bytes, flag: int = 0) -> bytes:
    return struct.pack(">BI", flag, len(message)) + message


@dataclass
class Frame:
    kind: int
    flags: int
    stream_id: int
    payload: bytes

    @property
    def ends_stream(self) -> bool:
        return self.kind in (Kind.DATA, Kind.HEADERS) and bool(self.flags & Flag.END_STREAM)


@dataclass
class Answer:
    """What came on a stream until it ended."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    reset: Code | None = None

    @property
    def status(self) -> int:
        return int({**self.headers, **self.trailers}[b"grpc-status"])

    @property
    def message(self) -> bytes:
        assert self.body[0] == 0
        assert struct.unpack(">I", self.body[1:5])[0] == len(self.body) - 5
        return self.body[5:]


class Peer:
    """The client's end.  It keeps what it has read, and grants no window by itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = hpack.Encoder()
        self.decoder = hpack.Decoder()
        self.frames: list[Frame] = []

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def greet(self, **options: int) -> None:
        self.send(PREFACE, settings(cast(Any, {int(key.strip("s")): value for key, value in options.items()})))

    def headers(self, stream_id: int, headers: list[tuple[bytes, bytes]], flags: int = Flag.END_HEADERS) -> bytes:
        return frame(Kind.HEADERS, flags, stream_id, self.encoder.encode(headers, huffman=False))

    def call(self, stream_id: int, message: bytes = b"hello", method: str = "Echo", **extra: str) -> None:
        body = frame(Kind.DATA, Flag.END_STREAM, stream_id, packed(message))
        self.send(self.headers(stream_id, request_headers(method, **extra)), body)

    async def read(self) -> Frame:
        """Raises EOFError (IncompleteReadError) at the end of the connection."""
        head, flags, stream_id = HEAD.unpack(await self.reader.readexactly(9))
        read = Frame(head & 0xFF, flags, stream_id, await self.reader.readexactly(head >> 8))
        self.frames.append(read)
        return read

    async def read_until(self, condition: Callable[[Frame], bool]) -> Frame:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                read = await self.read()
                if condition(read):
                    return read

    async def next_of(self, kind: Kind, stream_id: int = 0) -> Frame:
        return await self.read_until(lambda f: f.kind == kind and f.stream_id == stream_id)

    async def answer(self, stream_id: int) -> Answer:
        """Reads to the end of a stream.  Header blocks of all streams are decoded in the order they came."""
        answer, block, last, ended = Answer(), b"", False, False
        while not ended:
            read = await self.read_until(lambda f: f.kind in (0, 1, 3, 9))
            if read.kind in (Kind.HEADERS, Kind.CONTINUATION):
                block += read.payload
                last = read.ends_stream if read.kind == Kind.HEADERS else last
                if not read.flags & Flag.END_HEADERS:
                    continue
                fields = {bytes(k): bytes(v) for k, v in self.decoder.decode(block, raw=True)}
                block = b""
                if read.stream_id == stream_id:
                    ended = last
                    if answer.headers:
                        answer.trailers = fields
                    else:
                        answer.headers = fields
            elif read.stream_id == stream_id and read.kind == Kind.DATA:
                answer.body += read.payload
                ended = read.ends_stream
            elif read.stream_id == stream_id:
                answer.reset, ended = Code(struct.unpack(">I", read.payload)[0]), True
        return answer

    async def flood(self, frames: bytes) -> None:
        """Send without end and without reading.  Raises ConnectionError when cut off."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                self.send(frames)
                await self.writer.drain()

    async def goaway(self) -> tuple[int, Code]:
        """The last stream id and the code of the GOAWAY that comes, and then the end of the connection."""
        read = await self.next_of(Kind.GOAWAY)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await self.reader.read(-1) is not None
        self.writer.close()
        last, code = struct.unpack(">II", read.payload[:8])
        return last, Code(code)

    async def alive(self) -> bool:
        """Whether the connection still answers."""
        self.send(frame(Kind.PING, 0, 0, b"are you?"))
        return (await self.read_until(lambda f: f.kind == Kind.PING and bool(f.flags & 1))).payload == b"are you?"


async def until(condition: Callable[[], bool]) -> None:
    """For what the loop does in its own time."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110  (nothing to wait for: it is the server's inside)
            await asyncio.sleep(0.001)


class Service:
    """What the API serves: methods that tests can look into.  The budgets are such that no test meets them."""

    def __init__(self, request_memory: int = 1_000_000_000) -> None:
        self.requests = RequestMemory(request_memory)
        self.answers = AnswerMemory(1_000_000_000)
        self.started = asyncio.Event()
        self.gone = asyncio.Event()
        self.unsent = asyncio.Event()
        self.when_unsent: Callable[[], None] = lambda: None
        self.proceed = asyncio.Event()
        self.answer = b""
        self.received: list[bytes] = []

    async def echo(self, call: UnaryCall, request: bytes) -> bytes:
        return request

    async def wait(self, call: UnaryCall, request: bytes) -> bytes:
        """Waits until the caller is gone or `proceed` is set."""
        self.started.set()
        waits = [asyncio.ensure_future(call.hung_up()), asyncio.ensure_future(self.proceed.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        if call.has_hung_up():
            self.gone.set()
        return b"done"

    async def hold(self, call: UnaryCall, request: bytes) -> bytes:
        """Waits until `proceed` is set, whoever is gone."""
        await self.proceed.wait()
        return request

    async def give(self, call: UnaryCall, request: bytes) -> bytes:
        async def unsent() -> None:
            self.unsent.set()

        call.unless_sent(unsent)
        self.started.set()
        return self.answer

    async def fault(self, call: UnaryCall, request: bytes) -> bytes:
        raise ZeroDivisionError("a fault on purpose")

    async def chat(self, call: StreamingCall) -> None:
        try:
            async for request in call.requests():
                self.received.append(request)
                self.started.set()
                if request == b"hold":
                    await self.proceed.wait()
                await call.send(request.upper(), unless_sent=self._give_back)
        finally:
            self.gone.set()

    def _give_back(self) -> None:
        self.unsent.set()
        self.when_unsent()

    def methods(self) -> list[Method]:
        unary: dict[str, Callable[[UnaryCall, bytes], Awaitable[bytes]]] = {
            "Echo": self.echo,
            "Wait": self.wait,
            "Hold": self.hold,
            "Give": self.give,
            "Fault": self.fault,
        }
        return [
            *(Method(_rpc(name), SERVICE, handler, None) for name, handler in unary.items()),
            Method(_rpc("ListTopics", CallKind.QUERY), PUBLISHER, self.give, None),
            Method(_rpc("DeleteTopic", CallKind.CHANGE), PUBLISHER, self.give, None),
            Method(_rpc("Chat"), SERVICE, None, self.chat),
        ]


def _rpc(name: str, kind: CallKind = CallKind.PROBE) -> Rpc:
    service = SERVICE if kind is CallKind.PROBE else PUBLISHER
    full = f"{service.rpartition('.')[2]}.{name}"
    return Rpc(name=full, needs=NOTHING, kind=kind, size=Size.REQUEST, audit=Audit.USE, starts=None)


class Served:
    """A listening door."""

    def __init__(
        self, service: Service, port: int, connections: set[Any], tasks: set[Any], *, secure: bool = False
    ) -> None:
        self.service = service
        self.port = port
        self.connections = connections
        self.tasks = tasks
        self.secure = secure
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, *, greet: bool = True, **options: int) -> Peer:
        """`s4=0` is a setting: INITIAL_WINDOW_SIZE of 0."""
        tls: dict[str, Any] = {"ssl": trusting(), "server_hostname": "localhost"} if self.secure else {}
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, **tls)
        self._writers.append(writer)
        peer = Peer(reader, writer)
        if greet:
            peer.greet(**options)
        return peer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


def make_api(service: Service) -> GrpcApi:
    turns = LoopTurns()
    return GrpcApi(
        service.methods(),
        requests=service.requests,
        answers=service.answers,
        resource_calls=ResourceCalls(ResourceTurns(has_capacity=service.answers.has_capacity).of),
        hot_calls=HotCalls(lambda: False),
        calls=CallLog(StateChanges()),
        turns=turns,
        address_turns=make_address_turns(turns),
    )


@asynccontextmanager
async def serving(
    *, secure: bool = False, service: Service | None = None, **options: float
) -> AsyncIterator[Served]:
    connections, tasks = set[Any](), set[Any]()
    service = service or Service()
    api = make_api(service)

    def make_protocol() -> asyncio.Protocol:
        return api.connection(connections, tasks, **options)

    server = await asyncio.get_running_loop().create_server(
        behind_tls(make_protocol, connections) if secure else make_protocol, "127.0.0.1", 0
    )
    served = Served(service, server.sockets[0].getsockname()[1], connections, tasks, secure=secure)
    try:
        yield served
    finally:
        served.close()
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not connections)
