"""A transport that sends the head of a response together with its body.

uvicorn writes them one after the other, and uvloop sends each write at once: two packets, and a client on the same
machine that is woken twice, the first time for nothing.  A write costs as much processor time as decoding thirty
messages.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1.1 "


class OneWrite:
    """Holds the head of a response until the next write, at most to the loop's next turn.

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

    def write_eof(self) -> None:
        self._write_held()
        self._transport.write_eof()

    def close(self) -> None:
        self._write_held()
        self._transport.close()

    def _write_held(self) -> None:
        head, self._held = self._held, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
