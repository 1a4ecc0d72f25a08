"""Very many gRPC calls at once, on a few connections: what a client library would take gigabytes for."""

import asyncio
import struct
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from broker.net.http2.frames import Code, Flag, Kind, frame, reset, window_update
from tests.api.grpc.wire import REQUEST, Peer, packed

STREAMS = 1_000  # of a connection at one time
_LAST = b"the last"
OK, RESOURCE_EXHAUSTED, UNAVAILABLE = 0, 8, 14


def call_headers(method: str) -> list[tuple[bytes, bytes]]:
    """Of a call, "Subscriber/Pull" for one."""
    path = f"/google.pubsub.v1.{method}".encode()
    return [(name, path if name == b":path" else value) for name, value in REQUEST]


async def connect(url: str, **settings: int) -> Peer:
    """`s4=0` is a setting: INITIAL_WINDOW_SIZE of 0."""
    parts = urlsplit(url)
    peer = Peer(*await asyncio.open_connection(parts.hostname, parts.port))
    peer.greet(**settings)
    return peer


class Call:
    """One of a crowd's."""

    def __init__(self, peer: Peer, stream_id: int, subject: Any) -> None:
        self.peer = peer
        self.stream_id = stream_id
        self.subject = subject  # the caller's own
        self.body = b""
        self.status: int | None = None  # grpc-status, when it has ended
        self.trailers: dict[bytes, bytes] = {}

    @property
    def message(self) -> bytes:
        """The first of the answer; empty if there is none."""
        if len(self.body) < 5:
            return b""
        return self.body[5 : 5 + struct.unpack(">I", self.body[1:5])[0]]


class Crowd:
    """Reads whatever comes, and grants the window for it."""

    def __init__(self, url: str) -> None:
        self.calls: list[Call] = []
        self._url = url
        self._connections: list[tuple[Peer, dict[int, Call], asyncio.Task[None]]] = []
        self._incidents = asyncio.Event()

    async def call(self, method: str, requests: Iterable[tuple[Any, bytes]], *, ends: bool = True) -> list[Call]:
        """Begin a call for each (subject, request), on new connections."""
        begun: list[Call] = []
        waiting = list(requests)
        for at in range(0, len(waiting), STREAMS):
            peer, open_calls = await connect(self._url), dict[int, Call]()
            self._connections.append((peer, open_calls, asyncio.create_task(self._read(peer, open_calls))))
            for number, (subject, request) in enumerate(waiting[at : at + STREAMS]):
                call = Call(peer, 2 * number + 1, subject)
                begun.append(call)
                open_calls[call.stream_id] = call
                body = frame(Kind.DATA, Flag.END_STREAM if ends else 0, call.stream_id, packed(request))
                peer.send(peer.headers(call.stream_id, call_headers(method)), body)
            await peer.writer.drain()
        self.calls += begun
        return begun

    async def until(self, condition: Any, *, seconds: float = 60) -> None:
        """Until `condition()` holds; it is looked at whenever something has come."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._incidents.clear()
                await self._incidents.wait()

    async def cancel(self, *, in_reverse: bool = False) -> None:
        """All calls that have not ended, by resets; returns when the broker has read them."""
        for peer, open_calls, _ in self._connections[:: -1 if in_reverse else 1]:
            for stream_id in sorted(open_calls, reverse=in_reverse):
                peer.send(reset(stream_id, Code.CANCEL))
            open_calls.clear()
        await self.close()

    async def close(self) -> None:
        """Returns when the broker has read what was sent, or has ended the connections."""
        for peer, _, _ in self._connections:
            peer.send(frame(Kind.PING, 0, 0, _LAST))
            peer.writer.write_eof()
        await asyncio.wait_for(
            asyncio.gather(*[reading for _, _, reading in self._connections], return_exceptions=True), 300
        )
        for peer, _, _ in self._connections:
            peer.writer.close()
        self._connections.clear()

    async def _read(self, peer: Peer, open_calls: dict[int, Call]) -> None:
        while True:
            read = await peer.read()
            peer.frames.clear()
            call = open_calls.get(read.stream_id)
            if read.kind == Kind.DATA and call is not None:
                call.body += read.payload
                if read.payload:
                    peer.send(window_update(0, len(read.payload)), window_update(read.stream_id, len(read.payload)))
            elif read.kind == Kind.HEADERS:
                fields = {bytes(k): bytes(v) for k, v in peer.decoder.decode(read.payload, raw=True)}
                if call is not None and read.ends_stream:
                    call.status, call.trailers = int(fields[b"grpc-status"]), fields
                    del open_calls[read.stream_id]
            elif read.kind == Kind.PING and read.payload == _LAST:
                return
            elif read.kind == Kind.PING and not read.flags & Flag.ACK:
                peer.send(frame(Kind.PING, Flag.ACK, 0, read.payload))
            self._incidents.set()
