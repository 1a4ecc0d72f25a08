"""Acknowledging messages and changing their ack deadlines; Nack and Reject are extensions."""

from datetime import timedelta

import msgspec

from broker.api.peer import host_of
from broker.api.rest.call import Call
from broker.api.rest.codec.requests import decode_request
from broker.api.rest.codec.scalars import parse_duration
from broker.api.steps import LONG_BODY
from broker.core.acking.service import AcknowledgeService
from broker.model.ack_id import MAX_ACK_IDS
from broker.model.api_json import Int32

EMPTY = b"{}\n"


async def acknowledge(service: AcknowledgeService, call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    client = f"REST client {host_of(call.exchange.peer)}"
    await service.acknowledge(call.name, decode_acknowledge(call.body), call.caller.member, client)
    return EMPTY


async def modify_ack_deadline(service: AcknowledgeService, call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    request = decode_modify_ack_deadline(call.body)
    await service.modify_ack_deadline(call.name, request.ack_ids, request.ack_deadline_seconds, call.caller.member)
    return EMPTY


async def nack(service: AcknowledgeService, call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    await service.nack(call.name, *decode_nack(call.body), call.caller.member)
    return EMPTY


async def reject(service: AcknowledgeService, call: Call) -> bytes:
    if len(call.body) >= LONG_BODY:
        await call.turn_to_read()
    await service.reject(call.name, decode_reject(call.body), call.caller.member)
    return EMPTY


# --- JSON ---------------------------------------------------------------------------------------------------


class AcknowledgeRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []
    subscription: object = None  # in the path


class ModifyAckDeadlineRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []
    ack_deadline_seconds: Int32 = 0
    subscription: object = None  # in the path


class NackRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []
    delay: str | None = None


class RejectRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []


MAX_TOKENS = 2 * MAX_ACK_IDS + 100
_acknowledge = msgspec.json.Decoder(AcknowledgeRequest)
_modify_ack_deadline = msgspec.json.Decoder(ModifyAckDeadlineRequest)
_nack = msgspec.json.Decoder(NackRequest)
_reject = msgspec.json.Decoder(RejectRequest)


def decode_acknowledge(body: bytes) -> list[str]:
    """The ack ids of an acknowledge request.  Raises InvalidArgument."""
    return decode_request(_acknowledge, body, max_tokens=MAX_TOKENS).ack_ids


def decode_modify_ack_deadline(body: bytes) -> ModifyAckDeadlineRequest:
    """Raises InvalidArgument."""
    return decode_request(_modify_ack_deadline, body, max_tokens=MAX_TOKENS)


def decode_nack(body: bytes) -> tuple[list[str], timedelta | None]:
    """The ack ids and the delay, if there is one.  Raises InvalidArgument."""
    request = decode_request(_nack, body, max_tokens=MAX_TOKENS)
    return request.ack_ids, None if request.delay is None else parse_duration(request.delay, "delay")


def decode_reject(body: bytes) -> list[str]:
    """The ack ids of a reject request.  Raises InvalidArgument."""
    return decode_request(_reject, body, max_tokens=MAX_TOKENS).ack_ids
