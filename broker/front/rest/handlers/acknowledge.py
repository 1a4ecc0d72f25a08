"""Subscriber.Acknowledge and Subscriber.ModifyAckDeadline."""

from broker.front.rest.call import Call
from broker.front.rest.codec.acknowledge import decode_acknowledge, decode_modify_ack_deadline

EMPTY = b"{}\n"


async def acknowledge(call: Call) -> bytes:
    await call.services.acknowledge.acknowledge(call.name, decode_acknowledge(call.body))
    return EMPTY


async def modify_ack_deadline(call: Call) -> bytes:
    request = decode_modify_ack_deadline(call.body)
    await call.services.acknowledge.modify_ack_deadline(call.name, request.ack_ids, request.ack_deadline_seconds)
    return EMPTY
