"""Copying the retained messages of a topic to another topic, an extension."""

import msgspec

from broker.api import permissions
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_timestamp
from broker.api.rest.previews import SafeguardFields
from broker.core.log.copying import CopyOptions
from broker.features.import_export.copy_service import CopyService
from broker.features.operations.rest import operation_json, origin_of, validated


async def copy_topic(service: CopyService, call: Call) -> bytes:
    options = decode_copy(call.body)
    if call.gate is not None and options.target:
        await call.gate.allow(call.caller, permissions.PUBLISH, options.target)
    operation = await service.copy(call.name, options, origin=origin_of(call))
    body = operation_json(operation)
    return encode_resource(validated(call, body) if options.safeguards.validate_only else body)


# --- JSON ---------------------------------------------------------------------------------------------------


class CopyTopicRequest(SafeguardFields, rename="camel", forbid_unknown_fields=True):
    target_topic: str = ""
    filter: str = ""
    start_time: str = ""
    end_time: str = ""
    max_messages_per_second: float | None = None
    topic: object = None  # in the path


_decoder = msgspec.json.Decoder(CopyTopicRequest)


def decode_copy(body: bytes) -> CopyOptions:
    """Raises InvalidArgument."""
    request = decode_request(_decoder, body)
    return CopyOptions(
        target=request.target_topic,
        filter=request.filter,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
        max_rate=request.max_messages_per_second,
        safeguards=request.safeguards(),
    )
