"""Long work: starting it, looking at it, ending it; extensions (G1, G2)."""

from broker.domain.errors import FailedPrecondition, PermissionDenied
from broker.domain.names import leaf
from broker.domain.operation import Operation, Verb
from broker.domain.page import parse_page
from broker.front.rest.call import Call
from broker.front.rest.codec.lists import decode_page_parameters, encode_list
from broker.front.rest.codec.operations import decode_redrive, decode_wait, operation_json, plan_json
from broker.front.rest.codec.resources import encode_resource

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
    """By who may list a project's, and by who may do the same to its target."""
    if call.gate is None:
        return await call.services.operations.get_operation(call.name)
    try:
        project = call.name.rsplit("/", 2)[0]
        call.required = await call.gate.allow(call.caller, "Operations.ListOperations", project)
    except PermissionDenied:
        return await _owned(call)
    return await call.services.operations.get_operation(call.name)


async def _owned(call: Call) -> Operation:
    operation = await call.services.operations.get_operation(call.name)
    if call.gate is not None:
        if not isinstance(operation.verb, Verb):
            raise FailedPrecondition(
                f"The operation is a newer broker's, and of a verb that this one does not know: ask that one "
                f"(resource={leaf(call.name)}, verb={operation.verb})."
            )
        call.required = await call.gate.allow(call.caller, _STARTED_BY[operation.verb], operation.target)
    return operation
