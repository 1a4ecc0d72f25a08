"""REST handler that lists the messages that a topic retains, an extension."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.core.log.matched_message import ListedMessage
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import listed_as_seen
from broker.features.inspect.topic_page import TopicMessages, TopicPage, parse_topic_page
from broker.features.inspect.topic_service import TopicMessageService
from broker.model.page import page_token
from broker.model.timestamps import format_timestamp


async def list_messages(service: TopicMessageService, views: MessageViews, call: Call) -> bytes:
    page = decode_topic_page(call.query)
    view = await views.of(call, call.name)
    view.check_search(filter_text=page.filter, contains=page.contains)
    read = replace(page, preview_bytes=view.read_bytes(page.preview_bytes))
    found = await service.list_messages(call.name, read, hung_up=call.exchange.hung_up)
    shown = [await listed_as_seen(view, each, page.preview_bytes) for each in found.found]
    return encode_resource(topic_messages_json(found, shown))


# --- JSON ---------------------------------------------------------------------------------------------------


_NAMES = {"startTime": "start_time", "endTime": "end_time", "orderingKey": "ordering_key"}  # either spelling


def decode_topic_page(query: Mapping[str, str]) -> TopicPage:
    """Decodes the query parameters of a page.  Raises InvalidArgument."""
    given = {name: query.get(name, query.get(other, "")) for name, other in _NAMES.items()}
    times = {name: parse_timestamp(given[name], name) for name in ("startTime", "endTime") if given[name]}
    return parse_topic_page(
        *decode_page_parameters(query),
        order=query.get("order", ""),
        filter_text=query.get("filter", ""),
        ordering_key=given["orderingKey"] or None,
        since=times.get("startTime"),
        until=times.get("endTime"),
        contains=query.get("contains", ""),
        preview_bytes=decode_preview_bytes(query),
    )


def topic_messages_json(page: TopicMessages, shown: Sequence[ListedMessage]) -> dict[str, Any]:
    """Returns the JSON of a page.  Its `scannedMessageCount` is that of this page alone: callers add up pages."""
    body: dict[str, Any] = {
        "messages": shown,
        "scannedMessageCount": page.scanned,
    }
    if page.progress is not None:
        body["progress"] = {
            "searchedTime": format_timestamp(page.progress.time),
            "searchedMessagesEstimate": page.progress.searched,
            "totalMessagesEstimate": page.progress.total,
        }
    return body | ({} if page.rest is None else {"nextPageToken": page_token(*astuple(page.rest))})
