"""Following a topic or the journal of a subscription as Server-Sent Events; extensions."""

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from broker.domain.errors import BrokerError, InvalidArgument
from broker.domain.journal_tail import Written
from broker.domain.message_id import message_id
from broker.front.rest.call import Call
from broker.front.rest.codec.matched_message import matched_message
from broker.front.rest.codec.scalars import parse_timestamp
from broker.front.rest.errors import encode_error
from broker.front.rest.event_stream import EventStream, while_there
from broker.front.rest.handlers.delivery_reports import entry_json
from broker.services.tail import News
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


# --- JSON ---------------------------------------------------------------------------------------------------


ALIVE = b": alive\n\n"
_NUMBER = re.compile(rb"[0-9]{1,18}")
_encode = msgspec.json.Encoder().encode


def encode_news(news: News) -> bytes:
    """`message` events with their ids, and `skipped` events; a comment if there are none."""
    events = [b'event: skipped\ndata: {"messages": %d}\n\n' % news.skipped] if news.skipped else []
    for message in news.messages:
        body = matched_message(message)
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (body.message_id.encode(), _encode(body)))
    return b"".join(events) or ALIVE


def decode_start(query: Mapping[str, str]) -> datetime | None:
    """Raises InvalidArgument."""
    text = query.get("startTime", query.get("start_time", ""))
    return parse_timestamp(text, "startTime") if text else None


def decode_last_event(given: bytes) -> int | None:
    """The number that a reader has come to, by its Last-Event-ID; None: it has none.  Raises InvalidArgument."""
    if given and not _NUMBER.fullmatch(given):
        text = given[:100].decode("latin-1")
        raise InvalidArgument(f"Last-Event-ID is no id of an event of this stream (Last-Event-ID={text}).")
    return int(given) if given else None


def encode_written(rows: Sequence[Written]) -> bytes:
    """`journal` events, with the number that they have as their id; a comment if there are none."""
    return b"".join(b"event: journal\nid: %d\ndata: %b\n\n" % (r.number, _encode(_body(r))) for r in rows) or ALIVE


def _body(row: Written) -> dict[str, Any]:
    """Ids of a shard are consecutive as its sequences are: a run of messages is told by its ends."""
    return entry_json(row.entry) | {
        "messageCount": sum(high - low for low, high in row.ranges),
        "messages": [
            {
                "firstMessageId": message_id(row.shard_id, low),
                "lastMessageId": message_id(row.shard_id, high - 1),
            }
            for low, high in row.ranges
        ],
    }


def encode_failure(error: BrokerError) -> bytes:
    """An `error` event, with the body that a call has for it."""
    _, body, _ = encode_error(error)
    return b"event: error\ndata: %b\n\n" % b"".join(body.splitlines())
