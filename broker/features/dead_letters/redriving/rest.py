"""REST handler that redrives dead letters; an extension."""

from typing import Any

import msgspec

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.previews import SafeguardFields
from broker.features.dead_letters.chosen import RedriveOptions
from broker.features.dead_letters.redriving.service import RedrivePlan, RedriveService
from broker.features.operations.rest import operation_json, origin_of, validated


async def redrive(service: RedriveService, call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, call.needs, name)

    options = decode_redrive(call.body)
    if call.gate is not None and options.target:
        await call.gate.allow(call.caller, permissions.PUBLISH, options.target)
    plan = await service.redrive(call.name, options, origin=origin_of(call), may_consume=may_consume)
    return encode_resource(plan_json(call, plan))


# --- JSON ---------------------------------------------------------------------------------------------------


class RedriveRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    target: str = ""
    filter: str = ""
    message_ids: list[str] = msgspec.field(default_factory=list)
    start_time: str = ""
    end_time: str = ""
    reasons: list[str] = msgspec.field(default_factory=list)
    max_messages_per_second: float | None = None
    subscription: object = None  # in the path


_redrive = msgspec.json.Decoder(RedriveRequest)


def decode_redrive(body: bytes) -> RedriveOptions:
    """Decodes the options of a redrive.  Raises InvalidArgument."""
    request = decode_request(_redrive, body)
    return RedriveOptions(
        target=request.target,
        filter=request.filter,
        message_ids=request.message_ids,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
        reasons=request.reasons,
        max_rate=request.max_messages_per_second,
        safeguards=request.safeguards(),
    )


def plan_json(call: Call, plan: RedrivePlan) -> dict[str, Any]:
    """Returns the JSON of the operation.  A preview has no name, and is done."""
    body = operation_json(plan.operation)
    body["metadata"] |= {"takenFrom": list(plan.taken_from), "leftAlone": list(plan.left_alone)}
    return validated(call, body) if plan.validate_only else body
