"""Long work: starting it, looking at it, ending it; extensions (G1, G2)."""

from broker.domain.errors import FailedPrecondition, PermissionDenied
from broker.domain.names import leaf
from broker.domain.operation import Operation, Verb
from broker.domain.page import parse_page
from broker.front.gate import Gate
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.operations import decode_redrive, decode_wait, operation_json, plan_json
from broker.front.rest.codec.resources import encode_resource
from broker.services.operations import operation_not_found

_STARTED_BY = {  # the calls
    Verb.REDRIVE: "Redrive",
    Verb.COPY: "CopyTopic",
    Verb.PURGE: "PurgeSubscription",
    Verb.RECOVER: "RecoverPushes",
    Verb.REPLAY_MISSING: "ReplayMissingPushes",
}


async def redrive(call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, "Redrive", name)

    options = decode_redrive(call.body)
    if call.gate is not None and options.target:
        await call.gate.allow(call.caller, "Publisher.Publish", options.target)
    plan = await call.services.acting.redrives.redrive(
        call.name, options, started_by=call.caller.member, may_consume=may_consume
    )
    return encode_resource(plan_json(plan))


async def list_operations(call: Call) -> bytes:
    page = parse_page(*decode_page_parameters(call.query))
    operations, token = await call.services.operations.list_operations(call.name, page)
    return encode_list("operations", [operation_json(operation) for operation in operations], token)


async def get_operation(call: Call) -> bytes:
    return encode_resource(operation_json(await _seen(call)))


async def wait_operation(call: Call) -> bytes:
    timeout = decode_wait(call.body)
    await _seen(call)
    return encode_resource(operation_json(await call.services.operations.wait_operation(call.name, timeout)))


async def cancel_operation(call: Call) -> bytes:
    await _owned(call)
    await call.services.operations.cancel_operation(call.name)
    return encode_resource({})


async def delete_operation(call: Call) -> bytes:
    await _owned(call)
    await call.services.operations.delete_operation(call.name)
    return encode_resource({})


async def _seen(call: Call) -> Operation:
    """The operation, for callers who may list those of the project and for those of `_owned`.  Raises NotFound."""
    if call.gate is None or await _may_list(call, call.gate):
        return await call.services.operations.get_operation(call.name)
    return await _owned(call)


async def _owned(call: Call) -> Operation:
    """The operation, for callers who may start the same one on its target.

    Raises PermissionDenied; and NotFound, as if there were none, for callers who may not see it.
    """
    operation = await call.services.operations.get_operation(call.name)
    if call.gate is None:
        return operation
    try:
        call.required = await call.gate.allow(call.caller, _started_by(operation), operation.target)
    except (PermissionDenied, FailedPrecondition) as error:
        if await _may_list(call, call.gate):
            raise
        raise operation_not_found(call.name) from error
    return operation


async def _may_list(call: Call, gate: Gate) -> bool:
    project = call.name.rsplit("/", 2)[0]
    try:
        call.required = await gate.allow(call.caller, "Operations.ListOperations", project)
    except PermissionDenied:
        return False
    return True


def _started_by(operation: Operation) -> str:
    """The call that starts such an operation.  Raises FailedPrecondition."""
    if not isinstance(operation.verb, Verb):
        raise FailedPrecondition(
            f"The operation is a newer broker's, and of a verb that this one does not know: ask that one "
            f"(resource={leaf(operation.name)}, verb={operation.verb})."
        )
    return _STARTED_BY[operation.verb]
