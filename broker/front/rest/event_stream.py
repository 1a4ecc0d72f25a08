"""An answer that goes on for as long as somebody reads it: Server-Sent Events, or lines.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from broker.port.http1.exchange import Exchange
from broker.port.http1.responses import STATUS_LINES

READ_SECONDS = 30.0  # within which a reader takes what was written, but for the last 64 KB
_HEAD = b"content-type: %b\r\ncache-control: no-store\r\n"


class EventStream:
    """The answer to one exchange; `begin` comes first.  Events are complete, with their blank lines."""

    def __init__(self, exchange: Exchange, content_type: bytes = b"text/event-stream") -> None:
        self._exchange = exchange
        self._head = _HEAD % content_type
        self._last = exchange.is_last or exchange.head.version != "1.1"
        self._chunked = exchange.head.version == "1.1"

    def begin(self) -> None:
        exchange = self._exchange
        framing = b"transfer-encoding: chunked" if self._chunked else b"x-accel-buffering: no"
        end = exchange.end_of_head(last=self._last)
        exchange.write(b"%b\r\n%b%b%b%b" % (STATUS_LINES[200], exchange.headers, self._head, framing, end))

    async def send(self, events: bytes) -> bool:
        """Returns whether somebody still reads."""
        exchange = self._exchange
        exchange.write(b"%x\r\n%b\r\n" % (len(events), events) if self._chunked else events)
        try:
            async with asyncio.timeout(READ_SECONDS):
                await exchange.taken()
        except TimeoutError:
            exchange.cut_off()
        return not (exchange.gone or exchange.answered)

    def end(self) -> None:
        if self._chunked:
            self._exchange.write(b"0\r\n\r\n")
        self._exchange.finish(last=self._last)


async def while_there(exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
    """Do it, until it is done or the caller has gone."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(exchange.hung_up())
    try:
        await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (doing, gone):
            task.cancel()
        await asyncio.gather(doing, gone, return_exceptions=True)
    if not doing.cancelled():
        doing.result()
