"""What the bodies of topics and subscriptions have in common."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.errors import InvalidArgument


def encode_resource(resource: Mapping[str, Any]) -> bytes:
    """Pretty-printed JSON of the control plane, as the service prints it."""
    return msgspec.json.format(msgspec.json.encode(resource), indent=2) + b"\n"


def given_fields(body: msgspec.Struct) -> list[str]:
    """The fields that a body sets to something that is not empty."""
    return [field for field in body.__struct_fields__ if getattr(body, field)]


def require_same_name(given: str, name: str) -> None:
    """Raises InvalidArgument if a body names another resource than the path."""
    if given and given != name:
        raise InvalidArgument(f"The name in the body ({given}) differs from the name in the path ({name}).")
