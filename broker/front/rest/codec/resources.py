"""What the bodies of topics and subscriptions have in common."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.errors import InvalidArgument, Unimplemented


def encode_resource(resource: Mapping[str, Any]) -> bytes:
    """Pretty-printed JSON of the control plane, as the service prints it."""
    return msgspec.json.format(msgspec.json.encode(resource), indent=2) + b"\n"


def refuse_unsupported(body: msgspec.Struct, reasons: Mapping[str, str]) -> None:
    """Raises Unimplemented for a field that is set and not supported; its default value is no request."""
    for field, reason in reasons.items():
        if getattr(body, field):
            name = next(f.encode_name for f in msgspec.structs.fields(body) if f.name == field)
            raise Unimplemented(f"The field {name} is not supported: {reason}.")


def require_same_name(given: str, name: str) -> None:
    """Raises InvalidArgument if a body names another resource than the path."""
    if given and given != name:
        raise InvalidArgument(f"The name in the body ({given}) differs from the name in the path ({name}).")


def refuse_nul(value: Any, where: str = "$") -> None:
    """Raises InvalidArgument for U+0000 anywhere in a JSON value: PostgreSQL's text cannot hold it."""
    if isinstance(value, str) and "\0" in value:
        raise InvalidArgument(f"Invalid value at '{where}': the character U+0000 cannot be stored.")
    if isinstance(value, Mapping):
        for key, item in value.items():
            refuse_nul(key, where)
            refuse_nul(item, f"{where}.{key}")
    elif isinstance(value, list):
        for item in value:
            refuse_nul(item, where)
