"""Scalars of protobuf's JSON mapping that msgspec has no type for."""

import re

from broker.model.durations import parse_duration
from broker.model.errors import InvalidArgument
from broker.model.timestamps import parse_timestamp

__all__ = ["parse_duration", "parse_int32", "parse_timestamp"]

_INTEGER = re.compile(r"-?[0-9]{1,20}")  # [0-9], not \d: Python's \d and int() take the digits of any script


def parse_int32(text: str, field: str) -> int:
    """A number from a query parameter.  Raises InvalidArgument that names the field."""
    if not _INTEGER.fullmatch(text):
        raise InvalidArgument(f"Invalid value at '{field}': {text!r} is not a number.")
    value = int(text)
    if not -(2**31) <= value < 2**31:
        raise InvalidArgument(f"Invalid value at '{field}': {text} is out of range.")
    return value
