"""What is published on a topic, or happens to the messages of a subscription, as it comes; extensions."""

from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from broker.domain.errors import BrokerError
from broker.front.rest.call import Call
from broker.front.rest.codec.tail import (
    ALIVE,
    decode_last_event,
    decode_start,
    encode_failure,
    encode_news,
    encode_written,
)
from broker.front.rest.event_stream import EventStream, while_there
from broker.telemetry.spent import spending

T = TypeVar("T")


async def tail_topic(call: Call) -> bytes:
    async with call.services.looking.tail.tail(call.name, call.query.get("filter", "")) as news:
        return await _stream(call, news, encode_news)


async def tail_subscription(call: Call) -> bytes:
    since, after = decode_start(call.query), decode_last_event(call.exchange.head.header(b"last-event-id"))
    async with call.services.looking.journal_tail.tail(call.name, since=since, after=after) as written:
        return await _stream(call, written, encode_written)


async def _stream(call: Call, news: AsyncIterator[T], encode: Callable[[T], bytes]) -> bytes:
    """Until the caller goes, does not read, or may not read any more (the gate has answered for it then)."""
    stream = EventStream(call)
    stream.begin()
    if await stream.send(ALIVE):
        with spending("messages"):
            await while_there(call.exchange, _send(stream, news, encode))
    stream.end()
    return b""


async def _send(stream: EventStream, all_news: AsyncIterator[T], encode: Callable[[T], bytes]) -> None:
    try:
        async for news in all_news:
            if not await stream.send(encode(news)):
                return
    except BrokerError as error:
        await stream.send(encode_failure(error))
