"""What is published on a topic, as it comes; an extension."""

import asyncio
from collections.abc import AsyncIterator

from broker.domain.errors import BrokerError
from broker.front.rest.call import Call
from broker.front.rest.codec.tail import ALIVE, encode_failure, encode_news
from broker.front.rest.event_stream import EventStream
from broker.services.tail import News
from broker.telemetry.spent import spending


async def tail_topic(call: Call) -> bytes:
    """Until the caller goes, does not read, or may not read any more (the gate has answered for it then)."""
    async with call.services.looking.tail.tail(call.name, call.query.get("filter", "")) as news:
        stream = EventStream(call.exchange)
        stream.begin()
        if await stream.send(ALIVE):
            sending = asyncio.ensure_future(_send(stream, news))
            gone = asyncio.ensure_future(call.exchange.hung_up())
            try:
                with spending("messages"):
                    await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, gone):
                    task.cancel()
                await asyncio.gather(sending, gone, return_exceptions=True)
            if not sending.cancelled():
                sending.result()
    stream.end()
    return b""


async def _send(stream: EventStream, all_news: AsyncIterator[News]) -> None:
    try:
        async for news in all_news:
            if not await stream.send(encode_news(news)):
                return
    except BrokerError as error:
        await stream.send(encode_failure(error))
