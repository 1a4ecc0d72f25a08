"""Answers the browser with Server-Sent Events, until the browser goes or there are no more.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ALIVE = b"event: alive\ndata: {}\n\n"
RETRY = b"retry: 1000\n\n"  # milliseconds after which a browser whose connection has ended asks again
READ_SECONDS = 60.0  # within which a browser takes what was sent, but for the last 64 KB
_HEADERS = {"X-Accel-Buffering": "no"}  # proxies pass events on at once


def event(kind: str, data: Mapping[str, Any], id_: str = "") -> bytes:
    """Return an event whose data is JSON."""
    identity = f"id: {id_}\n" if id_ else ""
    return f"event: {kind}\n{identity}data: {json.dumps(data)}\n\n".encode()


class EventStreamResponse(Response):
    """The events of an iterator, which is closed when the browser has gone."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(headers={**headers, **_HEADERS})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        sending, leaving = asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        """Raises TimeoutError if the browser does not read; the connection is cut off then."""
        await _send_part(send, RETRY)
        async with aclosing(self._events) as events:  # type: ignore[type-var]
            async for part in events:
                await _send_part(send, part)
        await send({"type": "http.response.body", "body": b""})


async def _send_part(send: Send, part: bytes) -> None:
    async with asyncio.timeout(READ_SECONDS):
        await send({"type": "http.response.body", "body": part, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
