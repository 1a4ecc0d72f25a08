"""Testing a filter on retained messages, an extension."""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.core.log.log_page import FilterTest, LogPage, parse_log_page
from broker.core.viewing.message_view import MessageView
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import SeenMessage, matched_as_seen
from broker.features.filters.trial_service import FilterService
from broker.model.api_json import Int32
from broker.model.message_preview import WHOLE
from broker.model.page import page_token


async def test_filter(service: FilterService, views: MessageViews, call: Call) -> bytes:
    text, page = decode_test_filter(call.body)
    view = await views.of(call, call.name)
    view.check_search(filter_text=text)
    tested = await service.test_filter(call.name, text, page, hung_up=call.exchange.hung_up)
    return encode_resource(await _as_seen(tested, view, page))


async def test_filter_of_subscription(service: FilterService, views: MessageViews, call: Call) -> bytes:
    text, page = decode_test_filter(call.body)
    view = await views.of(call, call.name)
    view.check_search(filter_text=text)
    tested = await service.test_filter_of_subscription(call.name, text, page, hung_up=call.exchange.hung_up)
    return encode_resource(await _as_seen(tested, view, page))


async def _as_seen(tested: FilterTest, view: MessageView, page: LogPage) -> dict[str, Any]:
    shown_bytes = WHOLE if page.with_data else 0
    return filter_test_json(tested, [await matched_as_seen(view, each, shown_bytes) for each in tested.matched])


# --- JSON ---------------------------------------------------------------------------------------------------


class TestFilterRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    filter: str = ""
    page_size: Int32 = 0
    page_token: str = ""
    include_data: bool = False


_test_filter = msgspec.json.Decoder(TestFilterRequest)


def decode_test_filter(body: bytes) -> tuple[str, LogPage]:
    """The filter and the page that is wanted.  Raises InvalidArgument."""
    request = decode_request(_test_filter, body)
    return request.filter, parse_log_page(request.page_size, request.page_token, with_data=request.include_data)


def filter_test_json(test: FilterTest, seen: Sequence[SeenMessage]) -> dict[str, Any]:
    """A page of matches; the counts are those of the page, so that those of all pages add up."""
    body: dict[str, Any] = {"matchedMessages": seen} if seen else {}
    body |= {"matchedMessageCount": len(test.matched), "scannedMessageCount": test.scanned}
    return body | ({} if test.rest is None else {"nextPageToken": page_token(*astuple(test.rest))})
