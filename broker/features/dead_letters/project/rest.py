"""REST handler that lists and groups the dead letters of a project, an extension."""

from collections.abc import Sequence
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.core.viewing.message_view import MAX_MASKED_BYTES, Shown, Sight, sight_of
from broker.core.viewing.message_views import MessageViews
from broker.features.dead_letters.project.query import (
    ProjectDeadLetter,
    ProjectGroup,
    parse_group_query,
    parse_list_query,
)
from broker.features.dead_letters.project.service import (
    ProjectDeadLetters,
    ProjectDeadLetterService,
    ProjectGroups,
)
from broker.features.dead_letters.rest import dead_letter_json, show_dead_letter
from broker.model.errors import InvalidArgument
from broker.model.failure_cause import FailureCause
from broker.model.timestamps import format_timestamp


async def list_project_dead_letters(service: ProjectDeadLetterService, views: MessageViews, call: Call) -> bytes:
    size, token = decode_page_parameters(call.query)
    filter_text = call.query.get("filter", "")
    group_by = call.query.get("groupBy", call.query.get("group_by", ""))
    order_by = call.query.get("orderBy", call.query.get("order_by", ""))
    hung_up = call.exchange.hung_up
    if not group_by:
        if order_by:
            raise InvalidArgument(
                f"orderBy needs groupBy: a list without groups has the newest first (orderBy={order_by[:100]})."
            )
        preview_bytes, sight = decode_preview_bytes(call.query), sight_of(call.required)
        # Which rules apply is known once the dead letters are.
        read_bytes = {Sight.ATTRIBUTES: 0, Sight.MASKED: MAX_MASKED_BYTES if preview_bytes else 0}
        query = parse_list_query(
            call.name, size, token, filter_text=filter_text, preview_bytes=read_bytes.get(sight, preview_bytes)
        )
        page = await service.list_dead_letters(query, hung_up=hung_up)
        return encode_resource(_page_json(page, await _as_seen(views, sight, page.found, preview_bytes)))
    groups = parse_group_query(
        call.name, size, token, filter_text=filter_text, group_by=group_by, order_by=order_by
    )
    return encode_resource(_groups_json(await service.group_dead_letters(groups, hung_up=hung_up), groups.by))


async def _as_seen(
    views: MessageViews, sight: Sight, found: Sequence[ProjectDeadLetter], preview_bytes: int
) -> Sequence[Shown]:
    sources = {name: await views.of_resource(sight, name) for name in {each.subscription for each in found}}
    shown = []
    for each in found:
        # The subscription may have been deleted, or have another topic by now.
        names = [name for name in (each.subscription, each.topic) if name.startswith("projects/")]
        view = sources[each.subscription].joined(await views.of_names(sight, names))
        shown.append(await show_dead_letter(views, view, each.dead_letter, preview_bytes))
    return shown


# --- JSON ---------------------------------------------------------------------------------------------------


def _page_json(page: ProjectDeadLetters, shown: Sequence[Shown]) -> dict[str, Any]:
    body = {
        "deadLetters": [_dead_letter(*each) for each in zip(page.found, shown, strict=True)],
        "scannedDeadLetterCount": page.scanned,
        "settledDeadLetterCount": page.scanned - len(page.found),
    }
    return body | ({"nextPageToken": page.next_page_token} if page.next_page_token else {})


def _groups_json(page: ProjectGroups, by: tuple[str, ...]) -> dict[str, Any]:
    body = {"groups": [_group(each, by) for each in page.groups], "asOfTime": format_timestamp(page.until)}
    return body | ({"nextPageToken": page.next_page_token} if page.next_page_token else {})


def _dead_letter(found: ProjectDeadLetter, shown: Shown) -> dict[str, Any]:
    return {
        **dead_letter_json(found.dead_letter, shown),
        "sourceSubscription": found.subscription,
        "sourceTopic": found.topic,
        "fingerprint": found.fingerprint,
        **_response(found.cause),
    }


def _group(group: ProjectGroup, by: tuple[str, ...]) -> dict[str, Any]:
    return {
        "key": dict(zip(by, group.key, strict=True)),
        "count": group.count,
        "oldestTime": format_timestamp(group.oldest),
        "newestTime": format_timestamp(group.newest),
        "messageId": group.message_id,
        **({"reason": group.cause.reason} | _response(group.cause) if "fingerprint" in by else {}),
    }


def _response(cause: FailureCause) -> dict[str, str]:
    return {"response": cause.response} if cause.response else {}
