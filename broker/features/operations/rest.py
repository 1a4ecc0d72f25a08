"""The calls that query, await and end long-running operations; extensions."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec

from broker.api import permissions
from broker.api.gate import Gate
from broker.api.permissions import Needs
from broker.api.rest.call import Call
from broker.api.rest.codec.lists import decode_page_parameters, encode_list
from broker.api.rest.codec.requests import decode_json, decode_request
from broker.api.rest.codec.resources import encode_resource
from broker.api.rest.codec.scalars import parse_duration
from broker.api.rest.previews import done_or_preview, safeguards_of_query
from broker.features.operations.operation import Operation, OperationState, Origin
from broker.features.operations.service import OperationService, operation_not_found
from broker.model.errors import FailedPrecondition, PermissionDenied
from broker.model.names import leaf
from broker.model.operation_verb import Verb
from broker.model.timestamps import format_timestamp


class OperationCalls:
    """The calls about operations.  Only a caller who may start an operation may cancel or delete it."""

    def __init__(self, service: OperationService, needed_to_start: Callable[[Verb], Needs | None]) -> None:
        """`needed_to_start(verb)`: the permissions of the call that starts such an operation (None: there is no
        such call).
        """
        self._service = service
        self._needed_to_start = needed_to_start

    async def list_operations(self, call: Call) -> bytes:
        size, token = decode_page_parameters(call.query)
        order_by = call.query.get("orderBy", call.query.get("order_by", ""))
        operations, token = await self._service.list_operations(
            call.name,
            page_size=size,
            page_token=token,
            order_by=order_by,
            filter_text=call.query.get("filter", ""),
        )
        return encode_list("operations", [operation_json(operation) for operation in operations], token)

    async def get_operation(self, call: Call) -> bytes:
        return encode_resource(operation_json(await self._seen(call)))

    async def wait_operation(self, call: Call) -> bytes:
        timeout = decode_wait(call.body)
        await self._seen(call)
        return encode_resource(operation_json(await self._service.wait_operation(call.name, timeout)))

    async def cancel_operation(self, call: Call) -> bytes:
        await self._owned(call)
        await self._service.cancel_operation(call.name)
        return encode_resource({})

    async def delete_operation(self, call: Call) -> bytes:
        await self._owned(call)
        safeguards = safeguards_of_query(call)
        return await done_or_preview(call, await self._service.delete_operation(call.name, safeguards))

    async def _seen(self, call: Call) -> Operation:
        """Returns the operation to callers who may list those of the project or may start it.  Raises NotFound."""
        if call.gate is None or await _may_list(call, call.gate):
            return await self._service.get_operation(call.name)
        return await self._owned(call)

    async def _owned(self, call: Call) -> Operation:
        """Returns the operation to callers who may start the same one on its target.

        Raises PermissionDenied; and NotFound, as if the operation did not exist, for callers who may not see it.
        """
        operation = await self._service.get_operation(call.name)
        if call.gate is None:
            return operation
        try:
            needs = self._needs(operation)
            call.required = await call.gate.allow(call.caller, needs, operation.target)
        except (PermissionDenied, FailedPrecondition) as error:
            if await _may_list(call, call.gate):
                raise
            raise operation_not_found(call.name) from error
        return operation

    def _needs(self, operation: Operation) -> Needs:
        """Returns the permissions that starting the operation needs.

        Raises FailedPrecondition for an operation of a newer broker, or of a feature that this one lacks.
        """
        needs = self._needed_to_start(operation.verb) if isinstance(operation.verb, Verb) else None
        if needs is None:
            raise FailedPrecondition(
                f"The operation is a newer broker's, and of a verb that this one does not know: ask that one "
                f"(resource={leaf(operation.name)}, verb={operation.verb})."
            )
        return needs


async def _may_list(call: Call, gate: Gate) -> bool:
    project = call.name.rsplit("/", 2)[0]
    try:
        call.required = await gate.allow(call.caller, permissions.LIST_SUBSCRIPTIONS, project)
    except PermissionDenied:
        return False
    return True


# --- JSON ---------------------------------------------------------------------------------------------------


_TYPES = "type.googleapis.com/broker.v1."
_CODES = {  # google.rpc.Code, those that an operation may end with
    "CANCELLED": 1,
    "INVALID_ARGUMENT": 3,
    "NOT_FOUND": 5,
    "PERMISSION_DENIED": 7,
    "FAILED_PRECONDITION": 9,
    "INTERNAL": 13,
}


class WaitOperationRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    timeout: str = ""
    name: object = None  # in the path


_wait = msgspec.json.Decoder(WaitOperationRequest)


def decode_wait(body: bytes) -> timedelta | None:
    """Decodes the timeout, if there is one.  Raises InvalidArgument."""
    timeout = decode_request(_wait, body).timeout
    return parse_duration(timeout, "timeout") if timeout else None


def operation_json(operation: Operation) -> dict[str, Any]:
    """Encodes all fields of an operation; numbers of messages are strings, like protobuf's int64."""
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


def origin_of(call: Call) -> Origin:
    """Returns the principal that starts an operation, and its request."""
    request = decode_json(call.body)
    return Origin(principal=call.caller.member, request=request if isinstance(request, dict) else {})


def validated(call: Call, body: dict[str, Any]) -> dict[str, Any]:
    """Turns an operation that was only planned into the response to a preview: without a name, and done.

    Its metadata has the fields of a preview in addition to its own.
    """
    call.is_preview = True
    metadata = body["metadata"] | {"state": "VALIDATED", "validateOnly": True}
    metadata |= {"asOf": metadata["createTime"], "count": int(metadata["total"]), "unit": "message"}
    metadata |= {"estimated": True} if metadata.get("totalIsEstimate") else {}
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
    if operation.asked:
        body["request"] = operation.asked
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
