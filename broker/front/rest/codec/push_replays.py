"""Recovering failed pushes, and replaying missing ones; extensions (G2)."""

import msgspec

from broker.domain.push_replay import MissingOptions, RecoverOptions
from broker.front.rest.codec.requests import decode_request
from broker.front.rest.codec.scalars import parse_timestamp


class RecoverRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    start_time: str = ""
    max_messages_per_second: float | None = None
    validate_only: bool = False
    subscription: object = None  # in the path


class ReplayMissingRequest(RecoverRequest, rename="camel", forbid_unknown_fields=True):
    endpoint_time: str = ""


_recover = msgspec.json.Decoder(RecoverRequest)
_replay_missing = msgspec.json.Decoder(ReplayMissingRequest)


def decode_recover(body: bytes) -> RecoverOptions:
    """Raises InvalidArgument."""
    request = decode_request(_recover, body)
    return RecoverOptions(
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        max_rate=request.max_messages_per_second,
        validate_only=request.validate_only,
    )


def decode_replay_missing(body: bytes) -> MissingOptions:
    """Raises InvalidArgument."""
    request = decode_request(_replay_missing, body)
    return MissingOptions(
        start_time=parse_timestamp(request.start_time, "startTime") if request.start_time else None,
        endpoint_time=parse_timestamp(request.endpoint_time, "endpointTime") if request.endpoint_time else None,
        max_rate=request.max_messages_per_second,
        validate_only=request.validate_only,
    )
