"""google.longrunning's Operation, and what starts one; extensions (G1, G2)."""

from datetime import timedelta
from typing import Any

import msgspec

from broker.domain.operation import Operation, OperationState
from broker.domain.redrive import RedriveOptions
from broker.domain.timestamps import format_timestamp
from broker.front.rest.codec.requests import decode_request
from broker.front.rest.codec.scalars import parse_duration, parse_timestamp
from broker.services.redrive import RedrivePlan

_TYPES = "type.googleapis.com/broker.v1."
_CODES = {  # google.rpc.Code, those that an operation may end with
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "FAILED_PRECONDITION": 9,
    "INTERNAL": 13,
}


class RedriveRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    target: str = ""
    filter: str = ""
    message_ids: list[str] = []
    start_time: str = ""
    end_time: str = ""
    reasons: list[str] = []
    max_messages_per_second: float | None = None
    validate_only: bool = False
    subscription: object = None  # in the path


class WaitOperationRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    timeout: str = ""
    name: object = None  # in the path


_redrive = msgspec.json.Decoder(RedriveRequest)
_wait = msgspec.json.Decoder(WaitOperationRequest)


def decode_redrive(body: bytes) -> RedriveOptions:
    """Raises InvalidArgument."""
    request = decode_request(_redrive, body)
    return RedriveOptions(
        target=request.target,
        filter=request.filter,
        message_ids=request.message_ids,
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        end_time=parse_timestamp(request.end_time, "endTime") if request.end_time else None,
        reasons=request.reasons,
        max_rate=request.max_messages_per_second,
        validate_only=request.validate_only,
    )


def decode_wait(body: bytes) -> timedelta | None:
    """The timeout, if there is one.  Raises InvalidArgument."""
    timeout = decode_request(_wait, body).timeout
    return parse_duration(timeout, "timeout") if timeout else None


def operation_json(operation: Operation) -> dict[str, Any]:
    """With all that is known; numbers of messages are strings, as protobuf's int64 are."""
    body = {
        "name": operation.name,
        "metadata": _metadata(operation),
        "done": operation.ended_at is not None,
    }
    if operation.state is OperationState.SUCCEEDED:
        return body | {"response": {"@type": _response_type(operation.verb), **_counts(operation)}}
    if operation.ended_at is not None:
        return body | {"error": {"code": _CODES.get(operation.error_code, 2), "message": operation.error_message}}
    return body


def plan_json(plan: RedrivePlan) -> dict[str, Any]:
    """The operation; one that would only be started has no name, and is done."""
    body = operation_json(plan.operation)
    body["metadata"] |= {"takenFrom": list(plan.taken_from), "leftAlone": list(plan.left_alone)}
    return validated(body) if plan.validate_only else body


def validated(body: dict[str, Any]) -> dict[str, Any]:
    """An operation that would only be started: without a name, and done."""
    metadata = body["metadata"] | {"state": "VALIDATED", "validateOnly": True}
    response = {"@type": _response_type(metadata["verb"]), "chosen": metadata["total"]}
    return {"metadata": metadata, "done": True, "response": response}


def _response_type(verb: str) -> str:
    return f"{_TYPES}{verb[:1].upper()}{verb[1:]}Response"


def _metadata(operation: Operation) -> dict[str, Any]:
    body: dict[str, Any] = {
        "@type": f"{_TYPES}OperationMetadata",
        "verb": operation.verb,
        "target": operation.target,
        "state": operation.state,
        "createTime": format_timestamp(operation.created_at),
        "updateTime": format_timestamp(operation.updated_at),
        "done": str(operation.done),
        "total": str(operation.total),
        "ratePerSecond": round(operation.rate, 3),
        "counts": _counts(operation),
    }
    if operation.started_by:
        body["startedBy"] = operation.started_by
    if operation.is_estimate:
        body["totalIsEstimate"] = True
    if operation.ended_at is not None:
        body["endTime"] = format_timestamp(operation.ended_at)
    if operation.max_rate is not None:
        body["maxMessagesPerSecond"] = operation.max_rate
    if "targetTopic" in operation.request:
        body["targetTopic"] = operation.request["targetTopic"]
    if operation.progress.get("skipped"):
        body["skipped"] = operation.progress["skipped"]
    return body


def _counts(operation: Operation) -> dict[str, str]:
    return {name: str(count) for name, count in operation.counts.items()}
