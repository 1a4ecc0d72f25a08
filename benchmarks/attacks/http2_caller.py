"""Calls of gRPC frame by frame, with bodies that are made once: a client library would spend too much on them."""

import asyncio
import struct
from contextlib import suppress

from broker.net.http2.frames import HEAD, HEAD_BYTES, PREFACE, Flag, Kind, frame, settings
from broker.net.http2.headers import encode_headers

_FRAME_BYTES = 16_384
_HEADERS = (
    (b":method", b"POST"),
    (b":scheme", b"http"),
    (b":authority", b"localhost"),
    (b"te", b"trailers"),
    (b"content-type", b"application/grpc"),
)
_ENDS = (Kind.RST_STREAM, Kind.GOAWAY)


class Http2Caller:
    """One connection, which is made again when the server has closed it.  For one task."""

    def __init__(self, host: str, port: int) -> None:
        self._where = host, port
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._stream_id = -1
        self._ended: dict[int, asyncio.Event] = {}

    async def call(self, path: str, message: bytes, *, authorization: str = "", packed: bool = False) -> None:
        """Send a request and wait for the end of its answer, or of the connection.  `packed`: it is gzip."""
        ended = await self.begin(path, message, len(message), authorization=authorization, packed=packed)
        await ended.wait()

    async def begin(
        self, path: str, message: bytes, size: int, *, authorization: str = "", packed: bool = False
    ) -> asyncio.Event:
        """Send `size` bytes of a request; what is set once it is answered, or the connection has ended."""
        ended = asyncio.Event()
        with suppress(OSError):
            writer = await self._connected()
            self._stream_id += 2
            self._ended[self._stream_id] = ended
            headers = [*_HEADERS, (b":path", path.encode())]
            headers.sort(key=lambda header: not header[0].startswith(b":"))
            if authorization:
                headers.append((b"authorization", authorization.encode()))
            if packed:
                headers.append((b"grpc-encoding", b"gzip"))
            body = struct.pack(">BI", packed, len(message)) + message[:size]
            parts = [frame(Kind.HEADERS, Flag.END_HEADERS, self._stream_id, encode_headers(*headers))]
            for at in range(0, len(body), _FRAME_BYTES):
                last = Flag.END_STREAM if size == len(message) and at + _FRAME_BYTES >= len(body) else 0
                parts.append(frame(Kind.DATA, last, self._stream_id, body[at : at + _FRAME_BYTES]))
            writer.write(b"".join(parts))
            await writer.drain()
            return ended
        self._end()
        ended.set()
        return ended

    async def _connected(self) -> asyncio.StreamWriter:
        if self._writer is None or self._reading is None or self._reading.done():
            self._end()
            reader, self._writer = await asyncio.open_connection(*self._where)
            self._writer.write(PREFACE + settings({}))
            self._stream_id = -1
            self._reading = asyncio.create_task(self._read(reader, self._writer))
        return self._writer

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, flags, stream_id = HEAD.unpack(await reader.readexactly(HEAD_BYTES))
                kind, payload = head & 0xFF, await reader.readexactly(head >> 8)
                if kind == Kind.PING and not flags & Flag.ACK:
                    writer.write(frame(Kind.PING, Flag.ACK, 0, payload))
                if kind in _ENDS or (kind in (Kind.DATA, Kind.HEADERS) and flags & Flag.END_STREAM):
                    ended = self._ended.pop(stream_id, None)
                    if ended is not None:
                        ended.set()
        for ended in self._ended.values():
            ended.set()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        for ended in self._ended.values():
            ended.set()
        self._ended.clear()
