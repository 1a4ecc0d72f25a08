"""REST handler that follows a topic as server-sent events; an extension."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_preview_bytes
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.event_stream import ALIVE, stream_events
from broker.core.log.matched_message import ListedMessage
from broker.core.viewing.message_view import SEES_ALL, read_bytes_for_any_rule
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import listed_as_seen
from broker.features.inspect.tail_position import parse_position_token
from broker.features.inspect.tail_service import NewMessages, TailOptions, TailService


async def tail_topic(service: TailService, views: MessageViews, call: Call) -> bytes:
    options = decode_tail(call.query, call.exchange.head.header(b"last-event-id"))
    view = await views.of(call, call.name)
    view.check_search(filter_text=options.filter)
    # Rules may be made while the tail is open.
    preview_bytes = read_bytes_for_any_rule(view.sight, options.preview_bytes)

    async def seen(batches: AsyncIterator[NewMessages]) -> AsyncGenerator[SeenMessages, None]:
        async for batch in batches:
            view = await views.of(call, call.name) if batch.messages else SEES_ALL
            view.check_search(filter_text=options.filter)
            messages = [
                (id_, await listed_as_seen(view, each, options.preview_bytes)) for id_, each in batch.messages
            ]
            yield SeenMessages(messages, batch.skipped, batch.skipped_id)

    async with (
        service.tail(call.name, replace(options, preview_bytes=preview_bytes)) as new_messages,
        aclosing(seen(new_messages)) as shown,
    ):
        return await stream_events(call, shown, encode_new_messages)


@dataclass(frozen=True, slots=True)
class SeenMessages:
    """New messages as their reader sees them."""

    messages: Sequence[tuple[str, ListedMessage]]
    skipped: int
    skipped_id: str


# --- JSON ---------------------------------------------------------------------------------------------------


_encode = msgspec.json.Encoder().encode


def decode_tail(query: Mapping[str, str], last_event_id: bytes) -> TailOptions:
    """Decodes the options of a tail.  Raises InvalidArgument."""
    since = query.get("startTime", query.get("start_time", ""))
    return TailOptions(
        filter=query.get("filter", ""),
        preview_bytes=decode_preview_bytes(query),
        since=parse_timestamp(since, "startTime") if since else None,
        after=parse_position_token(last_event_id.decode("latin-1")) if last_event_id else None,
    )


def encode_new_messages(new_messages: SeenMessages) -> bytes:
    """Encodes `message` events with their ids, preceded by a `skipped` event; a comment if there is nothing new."""
    events = []
    if new_messages.skipped:
        skipped = new_messages.skipped_id.encode(), new_messages.skipped
        events.append(b'event: skipped\nid: %b\ndata: {"messages": %d}\n\n' % skipped)
    for id_, message in new_messages.messages:
        events.append(b"event: message\nid: %b\ndata: %b\n\n" % (id_.encode(), _encode(message)))
    return b"".join(events) or ALIVE
