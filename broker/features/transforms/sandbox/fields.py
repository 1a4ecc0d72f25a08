"""Applies a transform of fields to a message, without JavaScript.

Time and memory are proportional to the sizes of the message and of the transform, which are bounded.  A transform
that sets a field in each of a million elements exceeds that; the limits of the sandbox apply to it.  Numbers are
kept digit by digit.
"""

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from broker.features.transforms.sandbox.javascript import MAX_BYTES
from broker.features.transforms.sandbox.jobs import Ending, Message, Outcome
from broker.model.field_transform import Constant, Edits, FieldPath, Fields, Placeholder, Template, plan_of

_TYPES = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
_decode = msgspec.json.Decoder(float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode
_attributes = msgspec.json.Decoder(dict[str, str]).decode


class _Failed(Exception):
    """Why."""


class FieldEdits:
    """Ready to be done to any number of messages."""

    def __init__(self, fields: Fields) -> None:
        self._plan = plan_of(fields)

    def apply(self, message: Message) -> Outcome:
        try:
            return self._apply(message)
        except _Failed as why:
            return Outcome(Ending.FAILED, reason=str(why))
        except RecursionError:
            return Outcome(Ending.FAILED, reason="the data is nested too deeply")

    def _apply(self, message: Message) -> Outcome:
        plan, attributes = self._plan, _attributes(message.attributes)
        body = _read(message.data) if plan.reads_body else None
        values = [(path, _value(value, message, attributes, body)) for path, value in plan.sets]
        attributes = _edit(attributes, plan.attributes, plan.mask_with)
        if plan.body:
            body = _edit(body, plan.body, plan.mask_with)
        for path, value in values:
            if path.within == "attributes":
                attributes[path.keys[0]] = _text(value)
            else:
                _put(body, path, value)
        data = _encode(body) if plan.changes_body else message.data
        texts = _encode(attributes).decode()
        if len(data) + len(texts) > MAX_BYTES:
            raise _Failed(f"what it makes is over {MAX_BYTES} bytes")
        return Outcome(Ending.KEPT, data, texts)


def _read(data: bytes) -> Any:
    try:
        body = _decode(data)
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise _Failed(f"the data is not JSON ({error})") from None
    if not isinstance(body, dict | list):
        raise _Failed(f"the data is {_kind(body)}, not a JSON object or array")
    return body


# --- what is there ------------------------------------------------------------------------------------------------


def _edit(root: Any, edits: Edits, mask_with: str) -> Any:
    """Edits in place, except for `keep`, which makes a new value."""
    if edits.keep is not None:
        root = _kept(root, _tree(edits.keep))
    for keys in edits.remove:
        for holder in _holders(root, keys):
            del holder[keys[-1]]
    for keys, to in edits.rename:
        for holder in _holders(root, keys):
            holder[to] = holder.pop(keys[-1])
    for keys in edits.mask:
        for holder in _holders(root, keys):
            holder[keys[-1]] = mask_with
    return root


_Tree = dict[str, "_Tree | None"]


def _tree(paths: Sequence[tuple[str, ...]]) -> _Tree:
    """Builds the tree of the keys to keep; None: with all that is below.

    A path to more than another one counts alone.
    """
    tree: _Tree = {}
    for *parents, last in sorted(paths, key=len, reverse=True):
        below = tree
        for key in parents:
            next_ = below.setdefault(key, {})
            assert next_ is not None, "the shorter paths come later"
            below = next_
        below[last] = None
    return tree


def _kept(value: Any, tree: _Tree) -> Any:
    if isinstance(value, list):
        return [_kept(each, tree) for each in value if isinstance(each, dict | list)]
    kept = {}
    for key, each in value.items():
        if key in tree:
            below = tree[key]
            if below is None:
                kept[key] = each
            elif isinstance(each, dict | list):
                kept[key] = _kept(each, below)
    return kept


def _holders(root: Any, keys: Sequence[str]) -> list[dict[str, Any]]:
    """The objects that have the last of the keys, where the others lead to."""
    found = [root]
    for key in keys[:-1]:
        found = [each[key] for each in _objects(found) if key in each]
    return [each for each in _objects(found) if keys[-1] in each]


def _objects(values: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """An array stands for its elements, and so does one among these: what is to be masked must not be passed by."""
    waiting = list(reversed(values))
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            waiting.extend(reversed(value))


# --- what is put in -----------------------------------------------------------------------------------------------


def _value(value: Template | Constant, message: Message, attributes: Mapping[str, str], body: Any) -> Any:
    """A constant; what one placeholder alone stands for, as it is; else the text."""
    if not isinstance(value, tuple):
        return value
    pieces = [_found(each, message, attributes, body) if isinstance(each, Placeholder) else each for each in value]
    if len(pieces) == 1 and isinstance(value[0], Placeholder):
        return pieces[0]
    return "".join(map(_text, pieces))


def _found(placeholder: Placeholder, message: Message, attributes: Mapping[str, str], body: Any) -> Any:
    """Returns the value of a placeholder in the message as it came.

    Raises _Failed if there is neither a value nor a default.
    """
    source = placeholder.source
    if isinstance(source, FieldPath):
        root: Any = attributes if source.within == "attributes" else body
        found = [holder[source.keys[-1]] for holder in _holders(root, source.keys)]
    else:
        found = [text] if (text := getattr(message, source)) else []
    if not found and placeholder.default is None:
        raise _Failed(f"there is no {source} in the message")
    value = placeholder.default if not found else found[0] if len(found) == 1 else found
    return _decode(_encode(value)) if isinstance(value, dict | list) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _encode(value).decode()


def _put(root: Any, path: FieldPath, value: Any) -> None:
    """Into each object that the path leads to; those that there are not are made."""
    found = [root]
    for key in path.keys[:-1]:
        below = []
        for each in _objects(found):
            if each.get(key) is None:
                each[key] = {}
            if not isinstance(each[key], dict | list):
                raise _Failed(f"{path} cannot be set: {key} is {_kind(each[key])}, not an object")
            below.append(each[key])
        found = below
    for each in _objects(found):
        each[path.keys[-1]] = value


def _kind(value: Any) -> str:
    return _TYPES.get(type(value), "a number")
