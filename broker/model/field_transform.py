"""A declarative transform of attributes and of fields in a JSON body; an extension.

    {"keep": [...], "remove": [...], "rename": {...}, "mask": [...], "maskWith": "…", "set": {...}}

The steps are applied in this order.  A path is `attributes.key` or `body.key.key`, as in filters; an array on the
path stands for each of its elements.  `set` inserts a constant, or a template that is filled from the original
message: `{body.order.id}`, `{attributes.region|eu}` (with a default after `|`), `{message_id}`; `{{` is `{`.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from broker.model.errors import InvalidArgument

MAX_FIELDS_BYTES = 20_480  # as JSON: what code may have
MAX_KEYS = 32  # of a path
MAX_KEY_BYTES = 256  # of what is renamed: what an attribute's may have
METADATA = ("message_id", "publish_time", "ordering_key")
_SHOWN = 100  # characters of a refused value

_KEY = r'(?:[A-Za-z0-9_-]+|"(?:[^"\\{}]|\\.)*")'
_PATH = re.compile(rf"(attributes|body)((?:\.{_KEY})+)")
_KEYS = re.compile(_KEY)
_PIECES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")

Constant = str | int | float | bool | None


class Fields(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """`keep`: of the attributes, or of the body, if it names any, nothing else stays.  `rename`: a path, and the
    key that is its last one then.  `mask`: its value, of whatever type, becomes `mask_with`.
    """

    keep: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    rename: Mapping[str, str] = {}
    mask: tuple[str, ...] = ()
    mask_with: str = "****"
    set: Mapping[str, Constant] = {}


class FieldPath(NamedTuple):
    within: Literal["attributes", "body"]
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join([self.within, *(key if _KEYS.fullmatch(key) else json.dumps(key) for key in self.keys)])


class Placeholder(NamedTuple):
    """`source`: a path, or one of METADATA.  `default`: what stands where there is none (None: it fails)."""

    source: FieldPath | str
    default: str | None


Template = tuple[str | Placeholder, ...]


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of attributes, or of bodies, by the keys of fields.  `keep`: None keeps all."""

    keep: Sequence[tuple[str, ...]] | None
    remove: Sequence[tuple[str, ...]]
    rename: Sequence[tuple[tuple[str, ...], str]]
    mask: Sequence[tuple[str, ...]]

    def __bool__(self) -> bool:
        return self.keep is not None or bool(self.remove or self.rename or self.mask)


@dataclass(frozen=True, slots=True)
class Plan:
    """The parsed form of Fields.  `reads_body`: the body has to be JSON. `changes_body`: it is written anew."""

    attributes: Edits
    body: Edits
    mask_with: str
    sets: Sequence[tuple[FieldPath, Template | Constant]]
    reads_body: bool
    changes_body: bool


def plan_of(fields: Fields, where: str = "fields") -> Plan:
    """Raises InvalidArgument that names the field and the value."""
    size = len(msgspec.json.encode(fields))
    if size > MAX_FIELDS_BYTES:
        raise InvalidArgument(f"{where} has {size} bytes, the maximum is {MAX_FIELDS_BYTES}.")
    keep = _paths(fields.keep, f"{where}.keep")
    remove = _paths(fields.remove, f"{where}.remove")
    mask = _paths(fields.mask, f"{where}.mask")
    rename = [(parse_path(path, f"{where}.rename"), to) for path, to in fields.rename.items()]
    for path, to in rename:
        if not 0 < len(to.encode()) <= MAX_KEY_BYTES:
            raise InvalidArgument(
                f"Invalid value at '{where}.rename[{path}]': a key of 1 to {MAX_KEY_BYTES} bytes is expected, the "
                f"last one of the path that it has then, not {_cut(to)!r}."
            )
    sets = [_set(path, value, f"{where}.set") for path, value in fields.set.items()]
    if not (keep or remove or mask or rename or sets):
        raise InvalidArgument(f"{where} does nothing: it needs one of keep, remove, rename, mask and set.")
    attributes, body = (_edits(within, keep, remove, rename, mask) for within in ("attributes", "body"))
    changes = bool(body) or any(path.within == "body" for path, _ in sets)
    return Plan(attributes, body, fields.mask_with, sets, changes or any(map(_reads, sets)), changes)


def _edits(
    within: str,
    keep: Sequence[FieldPath],
    remove: Sequence[FieldPath],
    rename: Sequence[tuple[FieldPath, str]],
    mask: Sequence[FieldPath],
) -> Edits:
    kept, removed, masked = ([path.keys for path in of if path.within == within] for of in (keep, remove, mask))
    renamed = [(path.keys, to) for path, to in rename if path.within == within]
    return Edits(kept or None, removed, renamed, masked)


def _reads(set_: tuple[FieldPath, Any]) -> bool:
    value = set_[1]
    pieces = value if isinstance(value, tuple) else ()
    sources = [piece.source for piece in pieces if isinstance(piece, Placeholder)]
    return any(isinstance(source, FieldPath) and source.within == "body" for source in sources)


def _paths(given: Sequence[str], where: str) -> list[FieldPath]:
    return [parse_path(text, f"{where}[{index}]") for index, text in enumerate(given)]


def _set(path: str, value: Constant, where: str) -> tuple[FieldPath, Template | Constant]:
    target = parse_path(path, where)
    if isinstance(value, str):
        return target, parse_template(value, f"{where}[{_cut(path)}]")
    if target.within == "attributes":
        shown = msgspec.json.encode(value).decode()
        raise InvalidArgument(f"Invalid value at '{where}[{_cut(path)}]': an attribute is a text, not {shown}.")
    return target, value


def parse_path(text: str, where: str) -> FieldPath:
    """Raises InvalidArgument."""
    found = _PATH.fullmatch(text)
    path = None if found is None else _path(found)
    if path is None:
        raise InvalidArgument(
            f"Invalid value at '{where}': a path is attributes.key or body.key.key, each key of letters, digits, - "
            f"and _ or in double quotes, at most {MAX_KEYS} of them, not {_cut(text)}."
        )
    return path


def _path(found: re.Match[str]) -> FieldPath | None:
    within, rest = found[1], found[2]
    try:
        keys = tuple(json.loads(key) if key.startswith('"') else key for key in _KEYS.findall(rest))
    except ValueError:
        return None
    if len(keys) > (1 if within == "attributes" else MAX_KEYS):
        return None
    return FieldPath("attributes" if within == "attributes" else "body", keys)


def parse_template(text: str, where: str) -> Template:
    """Raises InvalidArgument."""
    return tuple(_pieces(text, where))


def _pieces(text: str, where: str) -> Iterator[str | Placeholder]:
    end = 0
    for found in _PIECES.finditer(text):
        if found.start() > end:
            yield text[end : found.start()]
        end = found.end()
        if found[0] in ("{{", "}}"):
            yield found[0][0]
        elif found[1] is None:
            raise InvalidArgument(
                f"Invalid value at '{where}': a {found[0]} at character {found.start() + 1} of {_cut(text)} has no "
                f"other one; a {found[0]} of the text itself is written twice."
            )
        else:
            yield _placeholder(found[1], where)
    if end < len(text):
        yield text[end:]


def _placeholder(text: str, where: str) -> Placeholder:
    found = _PATH.match(text)
    source: FieldPath | str | None = None if found is None else _path(found)
    end = 0 if found is None else found.end()
    if found is None:
        source = next((name for name in METADATA if text == name or text.startswith(f"{name}|")), None)
        end = len(source) if isinstance(source, str) else 0
    rest = text[end:]
    if source is None or (rest and not rest.startswith("|")):
        raise InvalidArgument(
            f"Invalid value at '{where}': between braces is a path (attributes.key or body.key.key), or one of "
            f"{', '.join(METADATA)}, and perhaps | and what stands where there is none, not {_cut(text)}."
        )
    return Placeholder(source, rest[1:] if rest else None)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
