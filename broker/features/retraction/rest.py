"""The calls that retract and replace messages, extensions."""

from typing import Any

import msgspec

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.previews import SafeguardFields, preview_answer
from broker.core.backlog.outcome import outcomes_json
from broker.core.resources.permitted import AskPermission
from broker.features.retraction.retraction import Retracted
from broker.features.retraction.service import RetractionService
from broker.model.errors import InvalidArgument
from broker.model.message import NewMessage
from broker.model.preview import Safeguards, Undone


async def retract(service: RetractionService, call: Call) -> bytes:
    message_ids, safeguards = decode_retract(call.body)
    try:
        done = await service.retract(
            call.name, message_ids, by=call.caller.member, may_see=_may_see(call), safeguards=safeguards
        )
    except Undone as undone:
        return await preview_answer(call, undone.preview)
    return encode_resource(retracted_json(done))


async def replace(service: RetractionService, call: Call) -> bytes:
    old_id, message = decode_replace(call.body)
    done = await service.replace(call.name, old_id, message, by=call.caller.member, may_see=_may_see(call))
    return encode_resource(replaced_json(done))


def _may_see(call: Call) -> AskPermission:
    async def may_see(name: str) -> None:
        if call.gate is not None:
            is_topic = name.split("/")[2] == "topics"
            needs = permissions.GET_TOPIC if is_topic else permissions.GET_SUBSCRIPTION
            await call.gate.allow(call.caller, needs, name)

    return may_see


# --- JSON ---------------------------------------------------------------------------------------------------


class RetractRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    message_ids: list[str] = msgspec.field(default_factory=list)
    topic: object = None  # in the path


class ReplaceRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    message_id: str = ""
    message: NewMessage | None = None
    topic: object = None  # in the path


_retract = msgspec.json.Decoder(RetractRequest)
_replace = msgspec.json.Decoder(ReplaceRequest)


def decode_retract(body: bytes) -> tuple[list[str], Safeguards]:
    """Decodes the ids and the safeguards.  Raises InvalidArgument."""
    request = decode_request(_retract, body)
    return request.message_ids, request.safeguards()


def decode_replace(body: bytes) -> tuple[str, NewMessage]:
    """Raises InvalidArgument."""
    request = decode_request(_replace, body)
    if not request.message_id:
        raise InvalidArgument("messageId must be given: which message is replaced.")
    if request.message is None:
        raise InvalidArgument("message must be given: what is published in its place.")
    return request.message_id, request.message


def retracted_json(done: Retracted) -> dict[str, Any]:
    """Encodes the outcome of each message, and by subscription the ids of the messages in each state."""
    body = outcomes_json(done.outcomes)
    subscriptions = []
    for name, states in done.states.items():
        alike: dict[str, list[str]] = {}
        for id_, state in states.items():
            alike.setdefault(state, []).append(id_)
        subscriptions.append({"subscription": name, **alike})
    return body | ({"subscriptions": subscriptions} if subscriptions else {})


def replaced_json(done: Retracted) -> dict[str, Any]:
    """Encodes the outcome of one message, and the id of the message in its place."""
    body = retracted_json(done)
    [result] = body.pop("results")
    del body["counts"]
    return {**result, "replacementId": done.replacement, **body}
