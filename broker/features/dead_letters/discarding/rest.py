"""REST handler that discards messages and dead letters, an extension."""

from typing import Any

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.previews import SafeguardFields, preview_answer
from broker.core.backlog.outcome import outcomes_json
from broker.features.dead_letters.chosen import RedriveOptions
from broker.features.dead_letters.discarding.discard import Discarded, DiscardOptions
from broker.features.dead_letters.discarding.service import DiscardService
from broker.model.page import page_token, parse_page_token
from broker.model.preview import Undone


async def discard(service: DiscardService, call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, call.needs, name)

    try:
        done = await service.discard(
            call.name, decode_discard(call.body), by=call.caller.member, may_consume=may_consume
        )
    except Undone as undone:
        return await preview_answer(call, undone.preview)
    return encode_resource(discarded_json(done))


# --- JSON ---------------------------------------------------------------------------------------------------


class DiscardRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    message_ids: list[str] = msgspec.field(default_factory=list)
    filter: str = ""
    start_time: str = ""
    end_time: str = ""
    reasons: list[str] = msgspec.field(default_factory=list)
    page_token: str = ""
    subscription: object = None  # in the path


_discard = msgspec.json.Decoder(DiscardRequest)


def decode_discard(body: bytes) -> DiscardOptions:
    """Decodes the options of a discard.  Raises InvalidArgument."""
    request = decode_request(_discard, body)
    dead_letters = RedriveOptions(
        filter=request.filter,
        message_ids=request.message_ids,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
        reasons=request.reasons,
        safeguards=request.safeguards(),
    )
    if not request.page_token:
        return DiscardOptions(dead_letters=dead_letters)
    shard_id, seq = parse_page_token(request.page_token, int, int)
    return DiscardOptions(dead_letters=dead_letters, start=(shard_id, seq))


def discarded_json(done: Discarded) -> dict[str, Any]:
    body = outcomes_json(done.outcomes)
    if done.left_alone:
        body["leftAlone"] = list(done.left_alone)
    return body | ({} if done.rest is None else {"nextPageToken": page_token(*done.rest)})
