"""The call that follows the journal of a subscription, with Server-Sent Events; an extension."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.event_stream import ALIVE, stream_events
from broker.core.records.journal_entry import entry_json
from broker.features.journal.journal_tail import Written
from broker.features.journal.service import JournalTailService
from broker.model.errors import InvalidArgument
from broker.model.message_id import message_id


async def tail_subscription(service: JournalTailService, call: Call) -> bytes:
    since, after = decode_start(call.query), decode_last_event(call.exchange.head.header(b"last-event-id"))
    async with service.tail(call.name, since=since, after=after) as written:
        return await stream_events(call, written, encode_written)


# --- JSON ---------------------------------------------------------------------------------------------------


_NUMBER = re.compile(rb"[0-9]{1,18}")
_encode = msgspec.json.Encoder().encode


def decode_start(query: Mapping[str, str]) -> datetime | None:
    """Decodes startTime; None: it is absent.  Raises InvalidArgument."""
    text = query.get("startTime", query.get("start_time", ""))
    return parse_timestamp(text, "startTime") if text else None


def decode_last_event(given: bytes) -> int | None:
    """Decodes Last-Event-ID, the number up to which a reader has read; None: it is absent.
    Raises InvalidArgument.
    """
    if given and not _NUMBER.fullmatch(given):
        text = given[:100].decode("latin-1")
        raise InvalidArgument(f"Last-Event-ID is no id of an event of this stream (Last-Event-ID={text}).")
    return int(given) if given else None


def encode_written(rows: Sequence[Written]) -> bytes:
    """Encodes entries as `journal` events, whose ids are the numbers of the entries; no entries as a comment."""
    return b"".join(b"event: journal\nid: %d\ndata: %b\n\n" % (r.number, _encode(_body(r))) for r in rows) or ALIVE


def _body(row: Written) -> dict[str, Any]:
    """Encodes an entry.

    The ids of a shard's messages are consecutive, as its sequences are, so each range has a first and a last id.
    """
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
