"""The body of a request: read, counted against the budget of the process, decompressed.

uvicorn reads on only as the door asks, so that a connection whose body is not taken yet holds some 64 KB at most.
A body counts from when its bytes are here until its call has been answered: what a publish holds while it waits to
be stored is part of it.
"""

import asyncio

from starlette.types import Receive, Scope

from broker.domain.errors import DeadlineExceeded, InvalidArgument
from broker.domain.payload import MAX_PAYLOAD_BYTES, decompressed, payload_too_large
from broker.domain.request_memory import RequestMemory
from broker.front.admission import Admission

BODY_SECONDS = 60.0  # for a body to arrive: one that stops halfway must not hold its memory for ever


class BodyReader:
    """Reads bodies within a budget; whoever reads one gives its bytes back (`memory.held`) when it is done with."""

    def __init__(self, memory: RequestMemory) -> None:
        self._memory = memory

    async def read(self, scope: Scope, receive: Receive, admission: Admission) -> tuple[bytes, int]:
        """The body, decompressed, and how many bytes of the budget it holds.

        Raises InvalidArgument past the limit of one body, without reading on; DeadlineExceeded; and the refusal.
        """
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _hung_up()  # else it would be served as one without a body
        body: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        held = self._take(len(body), admission) if body else 0
        encoding = _header(scope, b"content-encoding") if body or more else b""
        if not (more or encoding):
            return body, held
        try:
            if more:
                length = int(_header(scope, b"content-length") or 0)
                if length > MAX_PAYLOAD_BYTES:
                    raise payload_too_large()
                admission.check(self._memory, length - len(body))
                chunks = await self._rest(receive, admission, len(body))
                held += sum(map(len, chunks))
                body = b"".join([body, *chunks])
            if len(body) > MAX_PAYLOAD_BYTES:
                raise payload_too_large()
            if encoding:
                body = _decompressed(body, encoding.strip().lower())
                held += self._take(len(body), admission)
        except BaseException:
            self._memory.held -= held
            raise
        return body, held

    async def _rest(self, receive: Receive, admission: Admission, size: int) -> list[bytes]:
        """What comes after the first `size` bytes; counted as it comes."""
        chunks: list[bytes] = []
        held = 0
        try:
            async with asyncio.timeout(BODY_SECONDS):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise _hung_up()
                    chunks.append(message.get("body", b""))
                    held += self._take(len(chunks[-1]), admission)
                    if size + held > MAX_PAYLOAD_BYTES:
                        raise payload_too_large()
                    more = message.get("more_body", False)
        except TimeoutError:
            self._memory.held -= held
            raise DeadlineExceeded(f"The body did not arrive within {BODY_SECONDS:.0f} seconds.") from None
        except BaseException:
            self._memory.held -= held
            raise
        return chunks

    def _take(self, size: int, admission: Admission) -> int:
        held = self._memory.held
        if held + size > self._memory.limit:  # else there is room for everybody
            admission.check(self._memory, size)
        self._memory.held = held + size
        return size


def _hung_up() -> InvalidArgument:
    return InvalidArgument("The caller closed the connection within the request.")


def _header(scope: Scope, wanted: bytes) -> bytes:
    value: bytes
    for name, value in scope["headers"]:
        if name == wanted:
            return value
    return b""


def _decompressed(body: bytes, encoding: bytes) -> bytes:
    if encoding == b"identity":
        return body
    if encoding not in (b"gzip", b"x-gzip", b"deflate"):
        raise InvalidArgument(f"Unsupported Content-Encoding: {encoding.decode('latin-1')}.")
    return decompressed(body, InvalidArgument, f"The body is not valid {encoding.decode()}")
