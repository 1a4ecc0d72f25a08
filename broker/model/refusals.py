"""Refuses values that no resource can have, in any field."""

from collections.abc import Mapping
from typing import Any

from broker.model.errors import InvalidArgument


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
