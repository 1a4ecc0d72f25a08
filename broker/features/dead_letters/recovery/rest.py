"""REST handlers that recover failed pushes and replay missing ones, extensions."""

import msgspec

from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.previews import SafeguardFields
from broker.features.dead_letters.recovery.push_replay import MissingOptions, RecoverOptions
from broker.features.dead_letters.recovery.service import PushReplayService
from broker.features.dead_letters.redriving.rest import plan_json
from broker.features.operations.rest import operation_json, origin_of, validated


async def recover(service: PushReplayService, call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, call.needs, name)

    plan = await service.recover(
        call.name, decode_recover(call.body), origin=origin_of(call), may_consume=may_consume
    )
    return encode_resource(plan_json(call, plan))


async def replay_missing(service: PushReplayService, call: Call) -> bytes:
    options = decode_replay_missing(call.body)
    operation = await service.replay_missing(call.name, options, origin=origin_of(call))
    body = operation_json(operation)
    return encode_resource(validated(call, body) if options.safeguards.validate_only else body)


# --- JSON ---------------------------------------------------------------------------------------------------


class RecoverRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    start_time: str = ""
    max_messages_per_second: float | None = None
    subscription: object = None  # in the path


class ReplayMissingRequest(RecoverRequest, rename="camel", forbid_unknown_fields=True):
    endpoint_time: str = ""


_recover = msgspec.json.Decoder(RecoverRequest)
_replay_missing = msgspec.json.Decoder(ReplayMissingRequest)


def decode_recover(body: bytes) -> RecoverOptions:
    """Decodes the options of a recovery.  Raises InvalidArgument."""
    request = decode_request(_recover, body)
    return RecoverOptions(
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        max_rate=request.max_messages_per_second,
        safeguards=request.safeguards(),
    )


def decode_replay_missing(body: bytes) -> MissingOptions:
    """Decodes the options of a replay.  Raises InvalidArgument."""
    request = decode_request(_replay_missing, body)
    return MissingOptions(
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        endpoint_time=parse_timestamp(request.endpoint_time, "endpointTime") if request.endpoint_time else None,
        max_rate=request.max_messages_per_second,
        safeguards=request.safeguards(),
    )
