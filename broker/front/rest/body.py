"""The body of a request: read, counted against the budget of the process, decompressed.

The port reads on only as the door asks, so that a connection whose body is not taken yet holds some 64 KB at most.
A body counts from when its bytes are here until its call has been answered: what a publish holds while it waits to
be stored is part of it.
"""

import asyncio

from broker.domain.errors import DeadlineExceeded, InvalidArgument
from broker.domain.payload import MAX_PAYLOAD_BYTES, decompressed, payload_too_large
from broker.front.admission import Admission
from broker.front.request_memory import RequestMemory
from broker.port.http1.exchange import Exchange, Gone

BODY_SECONDS = 60.0  # for a body to arrive: one that stops halfway must not hold its memory for ever


class BodyReader:
    """Reads bodies within a budget; whoever reads one gives its bytes back (`memory.held`) when it is done with."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory

    async def read(self, exchange: Exchange, admission: Admission) -> tuple[bytes, int]:
        """The body, decompressed, and how many bytes of the budget it holds.

        Raises InvalidArgument past the limit of one body, without reading on; DeadlineExceeded; and the refusal.
        """
        more = False
        if (body := exchange.take()) is None:
            body, more = await _read(exchange)
        held = self._take(len(body), admission) if body else 0
        encoding = _header(exchange, b"content-encoding") if body or more else b""
        if not (more or encoding):
            return body, held
        try:
            if more:
                length = exchange.head.length or 0
                if length > MAX_PAYLOAD_BYTES:
                    raise payload_too_large()
                admission.check(self._memory, length - len(body))
                body = await self._rest(exchange, admission, body)
                held = len(body)
            if len(body) > MAX_PAYLOAD_BYTES:
                raise payload_too_large()
            if encoding:
                body = _decompressed(body, encoding.strip().lower())
                held += self._take(len(body), admission)
        except BaseException:
            self._memory.held -= held
            raise
        return body, held

    async def _rest(self, exchange: Exchange, admission: Admission, first: bytes) -> bytes:
        """The whole of a body that does not end with its `first` bytes; counted as it comes.

        It is kept in one piece: a list of the pieces would take far more than their bytes if they are small.
        """
        body, memory = bytearray(first), self._memory
        held = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    piece, more = await _read(exchange)
                    size = len(piece)
                    admission.check_arriving(memory, size, own=held)
                    held += self._take(size, admission)
                    memory.arriving += size
                    body += piece
                    if len(body) > MAX_PAYLOAD_BYTES:
                        raise payload_too_large()
        except TimeoutError:
            memory.held -= held
            raise DeadlineExceeded(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
        except BaseException:
            memory.held -= held
            raise
        finally:
            memory.arriving -= held
        return bytes(body)

    def _take(self, size: int, admission: Admission) -> int:
        held = self._memory.held
        if held + size > self._memory.limit:  # else there is room for everybody
            admission.check(self._memory, size)
        self._memory.held = held + size
        return size


async def _read(exchange: Exchange) -> tuple[bytes, bool]:
    try:
        return await exchange.read()
    except Gone:
        raise InvalidArgument("The caller closed the connection within the request.") from None


def _header(exchange: Exchange, wanted: bytes) -> bytes:
    for name, value in exchange.head.headers:
        if name == wanted:
            return value
    return b""


def _decompressed(body: bytes, encoding: bytes) -> bytes:
    if encoding == b"identity":
        return body
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise InvalidArgument(f"Unsupported Content-Encoding: {encoding.decode('latin-1')}.")
    return decompressed(body, InvalidArgument, f"The body is not valid {encoding.decode()}")
