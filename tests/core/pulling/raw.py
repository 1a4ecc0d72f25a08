"""A stream frame by frame, for clients that do not read, or that are gone without a word."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

from broker.api.generated.messages import StreamingPullRequest, StreamingPullResponse
from broker.net.http2.frames import Code, Kind, frame, reset
from tests.api.grpc.wire import REQUEST, Peer, packed
from tests.core.pulling.stream import PATH

_HEADERS = [(name, PATH.encode() if name == b":path" else value) for name, value in REQUEST]
STREAM, NEXT_STREAM = 1, 3


def _opening(peer: Peer, stream_id: int, fields: dict[str, Any]) -> tuple[bytes, bytes]:
    request = StreamingPullRequest(**fields).SerializeToString()
    return peer.headers(stream_id, _HEADERS), frame(Kind.DATA, 0, stream_id, packed(request))


class RawStreams:
    """Opens streams, each number 1 of a connection of its own; closes the connections."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)
        self._peers: list[Peer] = []

    async def open(self, *, window: int | None = None, **fields: Any) -> Peer:
        """`window`: bytes that the client takes, for good."""
        peer = Peer(*await asyncio.open_connection(self._url.hostname, self._url.port))
        self._peers.append(peer)
        peer.greet(**({} if window is None else {"s4": window}))  # INITIAL_WINDOW_SIZE
        peer.send(*_opening(peer, STREAM, fields))
        return peer

    async def waiting(self, **fields: Any) -> Peer:
        """Likewise, and the broker has begun to serve it: it has answered a heartbeat."""
        peer = await self.open(protocol_version=1, **fields)
        peer.send(frame(Kind.DATA, 0, STREAM, packed(b"")))
        await peer.next_of(Kind.DATA, STREAM)
        return peer

    def replace(self, peer: Peer, **fields: Any) -> None:
        """Cancel the stream and open another (NEXT_STREAM), in one breath."""
        peer.send(reset(STREAM, Code.CANCEL), *_opening(peer, NEXT_STREAM, fields))

    def close(self) -> None:
        for peer in self._peers:
            peer.writer.close()


async def leave(peer: Peer, how: str) -> None:
    """Returns once the broker can have noticed."""
    match how:
        case "cancelled":
            peer.send(reset(STREAM, Code.CANCEL))
            assert await peer.alive()
            return
        case "closed":
            peer.writer.close()
        case "aborted":
            peer.writer.transport.abort()
    await asyncio.sleep(0.1)  # the kernel tells it at once, but not us that it did


def status_of(peer: Peer) -> int:
    """The grpc-status of the stream, which has ended."""
    blocks = [read.payload for read in peer.frames if read.kind == Kind.HEADERS]
    fields = {bytes(name): bytes(value) for block in blocks for name, value in peer.decoder.decode(block, raw=True)}
    return int(fields[b"grpc-status"])


def received_by(peer: Peer, stream_id: int = STREAM) -> list[str]:
    """The data of all messages that came whole."""
    body = b"".join(f.payload for f in peer.frames if (f.kind, f.stream_id) == (Kind.DATA, stream_id))
    texts: list[str] = []
    while len(body) >= 5 and len(body) >= (end := 5 + int.from_bytes(body[1:5], "big")):
        response = StreamingPullResponse.FromString(body[5:end])
        texts += [message.message.data.decode() for message in response.received_messages]
        body = body[end:]
    return texts
