"""Replaces fields of a JSON text.  All other values stay as they were published, to the digit."""

import json
from collections.abc import Iterable
from typing import Any

import msgspec

from broker.core.viewing.json_path import JsonPath

MASK = "[masked]"  # in place of each value that is hidden

_MASKED = msgspec.Raw(msgspec.json.encode(MASK))
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array = msgspec.json.Decoder(list[msgspec.Raw])
_encode = msgspec.json.Encoder().encode
_SPACE = b" \t\r\n"


def mask_json(data: bytes, paths: Iterable[JsonPath]) -> bytes | None:
    """Returns the text with the values at the paths replaced, or `data` itself if it has none of them.

    None: the text has to be hidden as a whole, because it is no JSON, because a path means all of it, or because it
    cannot be told what a parser would read: it is nested too deep, or has a member of an object twice.
    """
    given = frozenset(paths)
    if () in given:
        return None
    try:
        json.loads(data.decode(), object_pairs_hook=_refuse_repeats)
        return bytes(_masked(msgspec.Raw(data), given))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> None:
    """Raises ValueError for an object that has a member twice: a parser may take the first or the last."""
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError("a name is given twice in one object")


def _masked(value: msgspec.Raw, paths: frozenset[JsonPath]) -> msgspec.Raw:
    if () in paths:
        return _MASKED
    text = bytes(value).lstrip(_SPACE)
    if not paths or text[:1] not in (b"{", b"["):
        return value
    if text[:1] == b"[":
        below = frozenset(rest for path in paths for rest in _in_element(path))
        elements = _array.decode(text)
        shown = [_masked(each, below) for each in elements]
        return value if all(map(_is_same, elements, shown)) else msgspec.Raw(_encode(shown))
    members = _object.decode(text)
    masked = {name: _masked(each, _in_member(paths, name)) for name, each in members.items()}
    if all(map(_is_same, members.values(), masked.values())):
        return value
    return msgspec.Raw(_encode(masked))


def _is_same(one: msgspec.Raw, other: msgspec.Raw) -> bool:
    return one is other


def _in_element(path: JsonPath) -> Iterable[JsonPath]:
    """Returns the rest of a path in an element of an array."""
    step, *rest = path
    if step.name is not None:
        yield path
        return
    yield tuple(rest)
    if step.deep:
        yield path


def _in_member(paths: frozenset[JsonPath], name: str) -> frozenset[JsonPath]:
    """Returns the rests of paths in the member of this name."""
    left: set[JsonPath] = set()
    for path in paths:
        if path[0].name in (None, name):
            left.add(path[1:])
        if path[0].deep:
            left.add(path)
    return frozenset(left)
