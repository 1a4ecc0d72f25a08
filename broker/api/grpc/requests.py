"""Decodes the requests of all methods."""

from typing import Any

from google.protobuf.message import DecodeError

from broker.model.errors import InvalidArgument


def decode_request(message_class: Any, body: bytes) -> Any:
    """Raises InvalidArgument."""
    try:
        return message_class.FromString(body)
    except DecodeError as error:
        name = message_class.DESCRIPTOR.full_name
        raise InvalidArgument(f"The request is not a valid {name} in protobuf's encoding.") from error
