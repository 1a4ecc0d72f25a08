"""uvicorn's HTTP protocol, with each response in one write.

uvicorn writes the head of a response and its body one after the other, and uvloop sends each write at once: two
packets, and a client on the same machine that is woken twice, the first time for nothing.  A write costs as much
processor time as decoding thirty messages.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "
ANSWER_SECONDS = 120.0  # for an answer of 13 MB at most: slower than a megabit a second is too slow


class _Joining:
    """A transport that holds the head of a response until the next write, at most to the loop's next turn.

    idle ──write of a head──► holding ──any write, close, or the next turn──► idle
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held: bytes | None = None

    def write(self, data: bytes) -> None:
        head, self._held = self._held, None
        if head is not None:
            self._transport.writelines((head, data))
        elif data.startswith(_HEAD):
            self._held = data
            self._loop.call_soon(self._write_held)  # an answer to HEAD has no body, 100 Continue no second write
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._write_held()
        self._transport.close()

    def _write_held(self) -> None:
        head, self._held = self._held, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class OneWriteProtocol(HttpToolsProtocol):
    """For uvicorn.Config(http=…).  Ends connections whose readers do not take their answers."""

    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, _Joining(cast(asyncio.Transport, transport))))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck = self.loop.call_later(ANSWER_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._not_stuck()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._not_stuck()
        super().connection_lost(exc)

    def _not_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
