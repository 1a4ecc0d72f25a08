"""Reads what was typed into the fields of forms.  Each raises ValueError with the rule."""

import base64
import json
from typing import Any


def whole_number(text: str) -> int:
    """Read a whole number that is not negative."""
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise ValueError(f"“{text}” is not a whole number.")
    return int(text)


def number(text: str) -> float:
    """Read a number that is not negative."""
    try:
        found = float(text)
    except ValueError:
        raise ValueError(f"“{text}” is not a number.") from None
    if not 0 <= found < float("inf"):
        raise ValueError(f"“{text}” is not a number of 0 or more.")
    return found


def checked(text: str) -> bool:
    """Read a check box, which is sent only if it is checked."""
    return text == "on"


def lines(text: str) -> list[str]:
    """Read a text of one entry a line, or of entries with commas or spaces between them."""
    return text.replace(",", " ").split()


def pairs(text: str) -> dict[str, str]:
    """Read lines of KEY=VALUE."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise ValueError(f"each line is KEY=VALUE, not “{line.strip()}”.")
        if key.strip() in found:
            raise ValueError(f"{key.strip()} is there twice.")
        found[key.strip()] = value.strip()
    return found


def data(text: str) -> str:
    """Read the body of a message as text, for a field of the API that takes base64."""
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def base64_data(text: str) -> str:
    """Read base64 as it is."""
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError("this is not base64.") from None
    return text


def seconds(text: str) -> str:
    """Read a number of seconds as a duration of the API."""
    return f"{number(text):g}s"


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"this is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise ValueError("this is not a JSON object.")
    return found
