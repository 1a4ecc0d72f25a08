"""A response without an end, for as long as the client reads it: Server-Sent Events, or lines.

https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from broker.api.rest.call import Call
from broker.api.rest.errors import encode_error
from broker.model.errors import BrokerError
from broker.net.http1.exchange import Exchange
from broker.observability.timing import timed

T = TypeVar("T")

READ_SECONDS = 30.0  # within which a reader must read what was written, except for the last 64 KB
_HEAD = b"content-type: %b\r\ncache-control: no-store\r\nx-accel-buffering: no\r\n"

ALIVE = b": alive\n\n"  # a comment, which shows that the stream is open


class EventStream:
    """The answer to a call; `begin` comes first.  Events are complete, with their blank lines."""

    def __init__(self, call: Call, content_type: bytes = b"text/event-stream") -> None:
        self._call = call
        self._exchange = call.exchange
        self._head = _HEAD % content_type

    def begin(self) -> None:
        self._exchange.begin(200, self._head)

    async def send(self, events: bytes) -> bool:
        """Returns whether somebody still reads."""
        exchange = self._exchange
        exchange.send(events)
        try:
            with self._call.answers.holding(self._call.name, len(events)):
                async with asyncio.timeout(READ_SECONDS):
                    await exchange.taken()
        except TimeoutError:
            exchange.cut_off()
        return not (exchange.gone or exchange.answered)

    def end(self) -> None:
        self._exchange.end()


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


async def stream_events(call: Call, updates: AsyncIterator[T], encode: Callable[[T], bytes]) -> bytes:
    """Answer a call with the events that `encode` makes of each piece of `updates`.

    Ends when the caller goes, does not read, or may not read any more (the gate has answered for it then).
    """
    stream = EventStream(call)
    stream.begin()
    if await stream.send(ALIVE):
        with timed("messages"):
            await while_there(call.exchange, _send(stream, updates, encode))
    stream.end()
    return b""


async def _send(stream: EventStream, all_updates: AsyncIterator[T], encode: Callable[[T], bytes]) -> None:
    try:
        async for updates in all_updates:
            if not await stream.send(encode(updates)):
                return
    except BrokerError as error:
        await stream.send(_encode_failure(error))


def _encode_failure(error: BrokerError) -> bytes:
    """An `error` event, with the body that a call has for it."""
    _, body, _ = encode_error(error)
    return b"event: error\ndata: %b\n\n" % b"".join(body.splitlines())
