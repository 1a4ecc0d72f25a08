"""Response field masks, by which a caller selects the fields of the response.

Both spellings of Google's APIs are accepted: that of google.protobuf.FieldMask ("topics.name,nextPageToken"), and
that of partial responses ("topics(name,labels/team),nextPageToken").

https://cloud.google.com/apis/docs/system-parameters, https://google.aip.dev/157
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from broker.api.generated.messages import response_of
from broker.api.google.passthrough import EXTENSION_FIELDS, passthrough, set_passthrough
from broker.api.google.passthrough import NAMES as PASSTHROUGH_NAMES
from broker.model.errors import InvalidArgument

HEADER = b"x-goog-fieldmask"
MAX_MASK = 4_096  # characters
MAX_DEPTH = 16

# The requested fields by their JSON names: the whole field (None), or a part of it.
Mask = Mapping[str, "Mask | None"]

_ANY = "*"
_TOKEN = re.compile(r"\s*([A-Za-z0-9_*-]+|[,()./])\s*")
_PUNCTUATION = ",()./"
_WELL_KNOWN = "google.protobuf."


def read_mask(text: str, rpc: str, *, source: str) -> Mask | None:
    """The mask of the answers to a method; None: all of an answer is wanted.

    `source`: the parameter or header that has it.  Raises InvalidArgument for a mask that cannot be read, or that
    names a field which no answer has.  Answers of the broker's own methods have no definition to check against.
    """
    if not text.strip():
        return None
    mask = _Reader(text, source).whole()
    response = response_of(rpc)
    mask = _in_json(mask) if response is None else _checked(mask, response.DESCRIPTOR, f"{source}={text[:200]}")
    return None if _ANY in mask and mask[_ANY] is None else mask


def mask_of(headers: Mapping[bytes, bytes], rpc: str) -> Mask | None:
    """The same of a call's headers.  Raises InvalidArgument."""
    given = headers.get(HEADER)
    return None if given is None else read_mask(given.decode("latin-1"), rpc, source="X-Goog-FieldMask")


def partial_json(value: Any, mask: Mask | None) -> Any:
    """The wanted parts of a decoded answer; a mask of a list is one of each item."""
    if mask is None:
        return value
    if isinstance(value, list):
        return [partial_json(item, mask) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: partial_json(item, _part(mask, name)) for name, item in value.items() if _wants(mask, name)}


def partial_message(message: Any, mask: Mask) -> Any:
    """A message with the wanted fields of another one."""
    part = type(message)()
    for field, value in message.ListFields():
        if _wants(mask, field.json_name):
            _put(part, field, value, _part(mask, field.json_name))
    name = PASSTHROUGH_NAMES.get(message.DESCRIPTOR.full_name)
    if name is not None and _wants(mask, name) and (said := passthrough(message)) is not None:
        set_passthrough(part, said)
    return part


def partial_answer(answer: bytes, mask: Mask, rpc: str) -> bytes:
    """The same of an answer in protobuf's encoding."""
    response = response_of(rpc)
    if response is None:
        return answer
    part: bytes = partial_message(response.FromString(answer), mask).SerializeToString()
    return part


def _wants(mask: Mask, name: str) -> bool:
    return name in mask or _ANY in mask


def _part(mask: Mask, name: str) -> Mask | None:
    return mask[name] if name in mask else mask[_ANY]


def _put(part: Any, field: FieldDescriptor, value: Any, mask: Mask | None) -> None:
    if field.is_repeated and _is_map(field):
        entries = {key: item for key, item in value.items() if mask is None or _wants(mask, str(key))}
        getattr(part, field.name).update(entries)
    elif field.is_repeated:
        getattr(part, field.name).extend(value if mask is None else [partial_message(item, mask) for item in value])
    elif field.message_type is not None:
        getattr(part, field.name).CopyFrom(value if mask is None else partial_message(value, mask))
    else:
        setattr(part, field.name, value)


class _Reader:
    """mask: item {"," item};  item: name {("." | "/") name} ["(" mask ")"]."""

    def __init__(self, text: str, source: str) -> None:
        self._where = f"{source}={text[:200]}"
        if len(text) > MAX_MASK:
            raise _invalid(self._where, f"it has {len(text)} characters, the maximum is {MAX_MASK}")
        self._tokens = [found[1] for found in _TOKEN.finditer(text)]
        if sum(len(found[0]) for found in _TOKEN.finditer(text)) != len(text):
            raise _invalid(self._where, "it has characters that no field's name has")
        self._next = 0

    def whole(self) -> Mask:
        mask = self._mask(0)
        if self._peek():
            raise _invalid(self._where, f"a comma is expected before {self._peek()!r}")
        return mask

    def _mask(self, depth: int) -> dict[str, Any]:
        mask: dict[str, Any] = {}
        self._item(mask, depth)
        while self._took(","):
            self._item(mask, depth)
        return mask

    def _item(self, mask: dict[str, Any], depth: int) -> None:
        path = [self._name()]
        while self._took("./"):
            path.append(self._name())
        depth += len(path)
        if depth > MAX_DEPTH:
            raise _invalid(self._where, f"it is nested deeper than {MAX_DEPTH} levels")
        within: Mask | None = None
        if self._took("("):
            within = self._mask(depth)
            if not self._took(")"):
                raise _invalid(self._where, "a parenthesis is not closed")
        for name in reversed(path):
            within = {name: within}
        _add(mask, within or {})

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _took(self, punctuation: str) -> bool:
        taken = self._peek() != "" and self._peek() in punctuation
        self._next += taken
        return taken

    def _name(self) -> str:
        name = self._peek()
        if name == "" or name in _PUNCTUATION:
            raise _invalid(self._where, f"the name of a field is expected, not {name or 'the end'!r}")
        self._next += 1
        return name


def _add(mask: dict[str, Any], other: Mask) -> None:
    """Make it the union of both; a field that either wants as a whole is wanted as a whole."""
    for name, within in other.items():
        if within is None or mask.get(name, {}) is None:
            mask[name] = None
        else:
            _add(mask.setdefault(name, {}), within)


def _checked(mask: Mask, message: Descriptor, where: str) -> Mask:
    """The mask with the JSON names of its fields.  Raises InvalidArgument for a field that the message lacks."""
    fields, extension_fields = (
        _fields(message),
        (*EXTENSION_FIELDS.get(message.full_name, ()), PASSTHROUGH_NAMES.get(message.full_name)),
    )
    checked: dict[str, Any] = {}
    for name, within in mask.items():
        field = fields.get(name)
        if field is None and name != _ANY and name not in extension_fields:
            known = ", ".join(
                sorted({*(each.json_name for each in message.fields), *filter(None, extension_fields)})
            )
            raise _invalid(where, f"{name!r} is no field of {message.name}, which has: {known or 'none'}")
        if field is not None and within is not None and not _is_map(field):
            if field.message_type is None or field.message_type.full_name.startswith(_WELL_KNOWN):
                raise _invalid(where, f"{name!r} of {message.name} can only be named as a whole")
            within = _checked(within, field.message_type, where)
        _add(checked, {name if field is None else field.json_name: within})
    return checked


@cache
def _fields(message: Descriptor) -> dict[str, FieldDescriptor]:
    """Returns the fields of a message by either spelling."""
    return {name: field for field in message.fields for name in (field.name, field.json_name)}


def _in_json(mask: Mask) -> Mask:
    """The mask of answers without a definition: each name as it was given, and in camelCase."""
    both: dict[str, Any] = {}
    for name, within in mask.items():
        part = None if within is None else _in_json(within)
        _add(both, {name: part, re.sub("_([a-z0-9])", lambda letter: letter[1].upper(), name): part})
    return both


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _invalid(where: str, why: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid field mask ({where}): {why}.")
