"""The body of a request: read, counted against the budget of the process, and decompressed.

A connection reads on only when the API asks for it, so that a connection whose body has not been taken holds about
64 KB at most.  A body counts from the time when its bytes have arrived until its call has been answered, because a
publish holds it while it waits to be stored.
"""

import asyncio
from collections.abc import Hashable
from typing import cast

from broker.access.principals.caller import ANONYMOUS, Caller
from broker.api.limits.admission import Admission
from broker.api.limits.request_memory import LARGE_BYTES, RequestMemory
from broker.api.steps import Steps, Turns
from broker.model.errors import DeadlineExceeded, InvalidArgument
from broker.net.http1.exchange import Exchange, Gone
from broker.net.limits.payload import decompress, payload_too_large

BODY_SECONDS = 60.0  # for a body to arrive: one that stops halfway must not hold its memory for ever


class LargeBody:
    """The bytes of a large request in the budget, as a part of its sender's share."""

    __slots__ = ("_admission", "_memory", "_sender", "_unpacked", "_unpacker", "held")

    def __init__(self, memory: RequestMemory, admission: Admission, sender: str) -> None:
        self.held = 0
        self._memory, self._admission, self._sender = memory, admission, sender
        self._unpacked = 0  # bytes that are held decompressed
        self._unpacker: Hashable = None  # whose share of decompressed requests it uses

    def take(self, size: int) -> None:
        """Hold so many bytes more.  Raises the refusal."""
        self._admission.check(self._memory, size)
        self._admission.take_share(self._memory, self._sender, size, own=self.held)
        self.held += size
        self._memory.held += size

    def decompress(self, body: bytes, encoding: bytes, caller: Caller) -> Steps[bytes]:
        """The body, decompressed; held besides what was sent.  Raises InvalidArgument, and the refusal."""
        if encoding not in (b"gzip", b"x-gzip", b"deflate"):
            raise InvalidArgument(f"Unsupported Content-Encoding: {encoding.decode('latin-1')}.")
        self._unpacker = caller.member or self._sender
        return decompress(
            body,
            InvalidArgument,
            f"The body is not valid {encoding.decode()}",
            most=self._admission.most,
            grown=self._unpack,
        )

    def _unpack(self, size: int) -> None:
        self._admission.unpack(self._memory, self._unpacker, size, own=self._unpacked)
        self._unpacked += size
        self.take(size)

    def let_go(self) -> None:
        if self._unpacked:
            self._memory.give_back_unpacked((self._unpacker,), self._unpacked)
            self._unpacked = 0
        self._admission.give_back_share(self._memory, self._sender, self.held)
        self._memory.held -= self.held
        self.held = 0

    async def read(self, exchange: Exchange, first: bytes) -> bytes:
        """The whole of a body that does not end with its `first` bytes; counted as it comes.

        It is kept in one piece: a list of the pieces would take far more than their bytes if they are small.
        """
        memory, sender, most = self._memory, self._sender, self._admission.most
        self._admission.check(memory, (exchange.head.length or 0) - len(first))
        body, arriving = bytearray(first), 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    piece, more = await _read(exchange)
                    memory.received += len(piece)
                    self._admission.arrive(memory, sender, len(piece), own=arriving)
                    arriving += len(piece)
                    self.take(len(piece))
                    body += piece
                    if len(body) > most:
                        raise payload_too_large(most)
        except TimeoutError:
            raise DeadlineExceeded(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
        finally:
            memory.arrived((sender,), arriving)
        return cast(bytes, body)  # it is only read, and a copy of 10 MB takes 4 ms


class BodyReader:
    """Reads bodies within a budget.  The caller releases the bytes of a body when it no longer needs them."""

    def __init__(self, memory: RequestMemory, turns: Turns) -> None:
        """`turns` of the event loop, to decompress in."""
        self._memory = memory
        self._turns = turns

    async def read(
        self, exchange: Exchange, admission: Admission, payer: str, caller: Caller = ANONYMOUS
    ) -> tuple[bytes, int, LargeBody | None]:
        """The body, decompressed; how many bytes of the budget it holds, or what does if it is large.

        `payer`: in whose share a large one counts (api/payer.py).  Raises InvalidArgument past the limit of one
        body, without reading on; DeadlineExceeded; and the refusal.
        """
        more = False
        if (exchange.head.length or 0) > admission.most:
            raise payload_too_large(admission.most)
        if (body := exchange.take()) is None:
            body, more = await _read(exchange)
        self._memory.received += len(body)
        if len(body) > admission.most:
            raise payload_too_large(admission.most)
        encoding = exchange.head.encoding if body or more else b""
        if not (more or encoding or admission.unpacks):
            if len(body) <= LARGE_BYTES:
                return body, self._take(len(body), admission) if body else 0, None
            if self._memory.take_unnamed(len(body)):
                return body, len(body), None
        large = LargeBody(self._memory, admission, payer)
        try:
            large.take(len(body))
            if more:
                body = await large.read(exchange, body)
            encoding = encoding.strip().lower()
            if encoding and encoding != b"identity":
                body = await self._turns.run(payer, large.decompress(body, encoding, caller))
        except BaseException:
            large.let_go()
            raise
        return body, 0, large

    def let_go(self, held: int, large: LargeBody | None) -> None:
        """Releases the bytes that `read` has returned with a body."""
        if held > LARGE_BYTES:
            self._memory.give_back_unnamed(held)
        else:
            self._memory.held -= held
        if large is not None:
            large.let_go()

    def _take(self, size: int, admission: Admission) -> int:
        held = self._memory.held
        if held + size > self._memory.limit:  # otherwise there is capacity for all
            admission.check(self._memory, size)
        self._memory.held = held + size
        return size


async def _read(exchange: Exchange) -> tuple[bytes, bool]:
    try:
        return await exchange.read()
    except Gone:
        raise InvalidArgument("The caller closed the connection within the request.") from None
