"""Server-Sent Events: an answer that goes on for as long as somebody reads it.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio

from broker.port.http1.exchange import Exchange
from broker.port.http1.responses import STATUS_LINES

READ_SECONDS = 30.0  # within which a reader takes what was written, but for the last 64 KB
_HEAD = b"content-type: text/event-stream\r\ncache-control: no-store\r\n"


class EventStream:
    """The answer to one exchange; `begin` comes first.  Events are complete, with their blank lines."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._last = exchange.is_last or exchange.head.version != "1.1"
        self._chunked = exchange.head.version == "1.1"

    def begin(self) -> None:
        exchange = self._exchange
        framing = b"transfer-encoding: chunked" if self._chunked else b"x-accel-buffering: no"
        end = exchange.end_of_head(last=self._last)
        exchange.write(b"%b\r\n%b%b%b%b" % (STATUS_LINES[200], exchange.headers, _HEAD, framing, end))

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
