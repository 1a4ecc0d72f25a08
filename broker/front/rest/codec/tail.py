"""What is published, and what is written into a journal, as Server-Sent Events; an extension."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from broker.domain.errors import BrokerError, InvalidArgument
from broker.domain.journal_tail import Written
from broker.domain.message_id import message_id
from broker.front.rest.codec.fates import entry_json
from broker.front.rest.codec.filters import matched_message
from broker.front.rest.codec.scalars import parse_timestamp
from broker.front.rest.errors import encode_error
from broker.services.tail import News

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
