"""Subscriber.Acknowledge and Subscriber.ModifyAckDeadline; Nack and Reject, extensions."""

from broker.front.peer import host_of
from broker.front.rest.call import Call
from broker.front.rest.codec.acknowledge import (
    decode_acknowledge,
    decode_modify_ack_deadline,
    decode_nack,
    decode_reject,
)
from broker.front.steps import LONG_BODY

EMPTY = b"{}\n"


async def acknowledge(call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    client = f"REST client {host_of(call.exchange.peer)}"
    await call.services.acknowledge.acknowledge(
        call.name, decode_acknowledge(call.body), call.caller.member, client
    )
    return EMPTY


async def modify_ack_deadline(call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    request = decode_modify_ack_deadline(call.body)
    await call.services.acknowledge.modify_ack_deadline(
        call.name, request.ack_ids, request.ack_deadline_seconds, call.caller.member
    )
    return EMPTY


async def nack(call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    await call.services.acknowledge.nack(call.name, *decode_nack(call.body), call.caller.member)
    return EMPTY


async def reject(call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    await call.services.acknowledge.reject(call.name, decode_reject(call.body), call.caller.member)
    return EMPTY
