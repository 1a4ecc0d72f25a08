"""Responses of the control plane."""

from collections.abc import Mapping
from typing import Any

import msgspec


def encode_resource(resource: Mapping[str, Any]) -> bytes:
    """Pretty-printed JSON, as the service prints it."""
    return msgspec.json.format(msgspec.json.encode(resource), indent=2) + b"\n"
