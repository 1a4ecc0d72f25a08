"""REST handler that lists and groups the dead letters of a subscription, an extension."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any

from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, decode_preview_bytes
from broker.api.rest.codec.resources import encode_resource
from broker.core.viewing.message_view import MessageView, Shown, Sight, read_bytes_for_any_rule
from broker.core.viewing.message_views import MessageViews
from broker.core.viewing.seen_messages import raw_attributes
from broker.features.dead_letters.dead_letter_list import (
    MAX_GROUPS,
    DeadLetter,
    DeadLetterList,
    DeadLetterPage,
    Group,
    Trait,
    parse_dead_letter_page,
    parse_trait,
)
from broker.features.dead_letters.service import DeadLetterService
from broker.model.message import PubsubMessage
from broker.model.message_id import message_id
from broker.model.page import page_token
from broker.model.timestamps import format_timestamp


async def list_dead_letters(service: DeadLetterService, views: MessageViews, call: Call) -> bytes:
    page, trait = decode_dead_letters(call.query)
    hung_up = call.exchange.hung_up
    view = await views.of(call, call.name)
    if view.sight is not Sight.WHOLE:
        await _check_choice(service, views, view, call, page, trait)
    if trait is None:
        read = replace(page, preview_bytes=read_bytes_for_any_rule(view.sight, page.preview_bytes))
        found = await service.list_dead_letters(call.name, read, hung_up=hung_up)
        shown = [await show_dead_letter(views, view, each, page.preview_bytes) for each in found.found]
        return encode_resource(dead_letters_json(found, shown))
    groups, found = await service.group_dead_letters(call.name, page, trait, hung_up=hung_up)
    return encode_resource(groups_json(groups, found))


async def _check_choice(
    service: DeadLetterService,
    views: MessageViews,
    view: MessageView,
    call: Call,
    page: DeadLetterPage,
    trait: Trait | None,
) -> None:
    """Raises PermissionDenied if dead letters are chosen or grouped by values that the caller does not see.

    The rules for all topics that have dead letters of the subscription apply, whether or not these match: a refusal
    for matching ones alone would tell that there are some.
    """
    compared = [(each.attribute, f"{_ATTRIBUTE}{each.attribute}") for each in page.chosen if each.attribute]
    compared += [(trait.attribute, "groupBy")] if trait is not None and trait.attribute else []
    if not page.filter and not compared:
        return
    topics = await service.dead_letter_topics(call.name, hung_up=call.exchange.hung_up)
    view = view.joined(await views.of_names(view.sight, topics))
    view.check_search(filter_text=page.filter)
    for attribute, field in compared:
        view.check_attribute(attribute, field)


async def show_dead_letter(
    views: MessageViews, view: MessageView, dead_letter: DeadLetter, preview_bytes: int
) -> Shown:
    """Returns a dead letter as its caller sees it: by `view`, and by the rules for the topic that it is in, which
    may be an earlier dead-letter topic of the subscription.
    """
    there = await views.of_names(view.sight, [dead_letter.topic])
    size = dead_letter.data_size
    return await view.joined(there).show(dead_letter.attributes_text, dead_letter.data, size, preview_bytes)


# --- JSON ---------------------------------------------------------------------------------------------------


_ATTRIBUTE = "attribute:"


def decode_dead_letters(query: Mapping[str, str]) -> tuple[DeadLetterPage, Trait | None]:
    """Decodes the options of a page, and the trait to group by (None: a list).  Raises InvalidArgument."""
    chosen = {parse_trait(name): query[name] for name in ("reason", "status", "hour") if name in query}
    chosen |= {parse_trait(name): value for name, value in query.items() if name.startswith(_ATTRIBUTE)}
    page = parse_dead_letter_page(
        *decode_page_parameters(query),
        chosen=chosen,
        filter_text=query.get("filter", ""),
        preview_bytes=decode_preview_bytes(query),
    )
    by = query.get("groupBy", query.get("group_by", ""))
    return page, parse_trait(by) if by else None


def dead_letters_json(found: DeadLetterList, shown: Sequence[Shown]) -> dict[str, Any]:
    """Returns the JSON of a page.  Its counts are those of this page alone: callers add up pages."""
    listed = [dead_letter_json(*each) for each in zip(found.found, shown, strict=True)]
    body = {"deadLetters": listed, **_scanned_counts(found)}
    return body | ({} if found.rest is None else {"nextPageToken": page_token(*astuple(found.rest))})


def groups_json(groups: Sequence[Group], found: DeadLetterList) -> dict[str, Any]:
    body = {"groups": [_group(group) for group in groups[:MAX_GROUPS]], "deadLetterCount": len(found.found)}
    body |= _scanned_counts(found)
    if len(groups) > MAX_GROUPS:
        body["moreGroups"] = len(groups) - MAX_GROUPS
    return body | ({} if found.rest is None else {"atLeast": True})


def _scanned_counts(found: DeadLetterList) -> dict[str, Any]:
    return {"scannedDeadLetterCount": found.scanned, "settledDeadLetterCount": found.resolved}


def _group(group: Group) -> dict[str, Any]:
    return {
        "key": group.key,
        "count": group.count,
        "oldestTime": format_timestamp(group.oldest),
        "newestTime": format_timestamp(group.newest),
        "firstMessageId": group.first.source_message_id,
    }


def dead_letter_json(dead_letter: DeadLetter, shown: Shown) -> dict[str, Any]:
    """Returns the JSON of a dead letter: the message in the dead-letter topic, and where it comes from."""
    return {
        "message": PubsubMessage(
            data=shown.data,
            attributes=raw_attributes(shown),
            message_id=message_id(dead_letter.dead_letter_shard, dead_letter.dead_letter_seq),
            publish_time=format_timestamp(dead_letter.publish_time),
            ordering_key=dead_letter.ordering_key or "",
        ),
        "dataSize": dead_letter.data_size,
        "deadLetterTopic": dead_letter.topic,
        "subscriptions": list(dead_letter.subscriptions),
        "sourceMessageId": dead_letter.source_message_id,
        "sourcePublishTime": format_timestamp(dead_letter.source_publish_time),
        "deliveryAttempts": dead_letter.delivery_attempts,
        "reason": dead_letter.reason,
        **({} if shown.masked is None else {"masked": shown.masked}),
    }
