"""Acknowledge and ModifyAckDeadline requests."""

import msgspec

from broker.front.rest.codec.requests import Int32, decode_request


class AcknowledgeRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []
    subscription: object = None  # in the path


class ModifyAckDeadlineRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    ack_ids: list[str] = []
    ack_deadline_seconds: Int32 = 0
    subscription: object = None  # in the path


_acknowledge = msgspec.json.Decoder(AcknowledgeRequest)
_modify_ack_deadline = msgspec.json.Decoder(ModifyAckDeadlineRequest)


def decode_acknowledge(body: bytes) -> list[str]:
    """The ack ids of an acknowledge request.  Raises InvalidArgument."""
    return decode_request(_acknowledge, body).ack_ids


def decode_modify_ack_deadline(body: bytes) -> ModifyAckDeadlineRequest:
    """Raises InvalidArgument."""
    return decode_request(_modify_ack_deadline, body)
