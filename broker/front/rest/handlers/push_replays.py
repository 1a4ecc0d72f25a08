"""Recovering failed pushes, and replaying missing ones; extensions (G2)."""

from broker.front.rest.call import Call
from broker.front.rest.codec.operations import operation_json, plan_json, validated
from broker.front.rest.codec.push_replays import decode_recover, decode_replay_missing
from broker.front.rest.codec.resources import encode_resource


async def recover(call: Call) -> bytes:
    async def may_consume(name: str) -> None:
        if call.gate is not None:
            await call.gate.allow(call.caller, "RecoverPushes", name)

    plan = await call.services.acting.push_replays.recover(
        call.name, decode_recover(call.body), started_by=call.caller.member, may_consume=may_consume
    )
    return encode_resource(plan_json(plan))


async def replay_missing(call: Call) -> bytes:
    options = decode_replay_missing(call.body)
    operation = await call.services.acting.push_replays.replay_missing(
        call.name, options, started_by=call.caller.member
    )
    body = operation_json(operation)
    return encode_resource(validated(body) if options.validate_only else body)
