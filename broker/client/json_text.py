"""Reads JSON (RFC 8259) from files, command lines and servers, within limits that the code behind it relies on."""

import json
import re
from typing import Any

MAX_DEPTH = 100  # of arrays and objects within each other
_MAX_DIGITS = 100  # of a whole number
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A string that does not end is a token as well, so that no part of a text is looked at twice.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJson(ValueError):
    """Says what is wrong, and on which line if the text has several."""


def parse_json(text: str | bytes, *, sendable: bool = False) -> Any:
    """`sendable`: every string of it can be encoded in UTF-8.  Raises NotJson."""
    if isinstance(text, bytes):
        try:
            text = text.removeprefix(_BYTE_ORDER_MARK).decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotJson(f"the byte {error.object[error.start]:#04x} is not UTF-8") from None
    _check_depth(text)
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite, parse_int=_whole)
        if sendable and _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise NotJson("a string has half of a pair of surrogates") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg}{_at(text, error.pos)}") from None
    return value


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        if depth > MAX_DEPTH:
            raise NotJson(f"it is nested more than {MAX_DEPTH} levels deep{_at(text, token.start())}")


def _at(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return f" (line {line}, column {column})" if "\n" in text.rstrip() else f" (column {column})"


def _refuse_constant(name: str) -> float:
    raise NotJson(f"JSON has no {name}")


def _finite(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")):
        raise NotJson(f"the number {digits[:_MAX_DIGITS]} is out of range")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise NotJson(f"the number {digits[:_MAX_DIGITS]}… has more than {_MAX_DIGITS} digits")
    return int(digits)
