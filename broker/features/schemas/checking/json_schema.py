"""JSON Schema (2020-12) and messages in JSON, by jsonschema-rs: an extension.

The library fetches nothing, and its patterns are matched in linear time.  Only small definitions remain that make
the check of a small message expensive, by references to references and alternatives of alternatives.  So the cost
of a definition is estimated before messages are checked by it; one that refers to itself never counts as quick.
"""

import json
import re
from collections.abc import Sequence
from math import inf
from typing import Any

import jsonschema_rs
import msgspec

from broker.features.schemas.checking.avro_measure import check_nesting
from broker.features.schemas.checking.mismatch import Mismatch, all_pass
from broker.features.schemas.checking.strict_json import decode_json
from broker.model.errors import InvalidArgument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_QUICK_WEIGHT = 20_000  # of a definition that is compiled in the broker's own process
MAX_QUICK_WORK = 2_000_000  # weight times bytes; some 20 ms at most
MAX_QUICK_BYTES = 100_000  # to read the JSON takes some 10 ms
MAX_QUICK_PATTERNS = 20  # each may come to take half a megabyte
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=256_000, dfa_size_limit=256_000)
_PATTERN_WEIGHT = 100  # of each of its characters
_REPETITION = re.compile(r"\{(\d{1,9})?,?(\d{1,9})?\}")
_ELSEWHERE = {"$id", "$anchor", "$dynamicRef", "$dynamicAnchor"}  # what makes references hard to follow
_SHOWN = 300


class JsonSchema:
    """A definition that messages can be checked against.  It is compiled when it is first needed."""

    def __init__(self, definition: str) -> None:
        """Raises InvalidArgument for what is not JSON, is nested too deep or is of another dialect."""
        try:
            self._source = decode_json(definition)
        except ValueError as error:
            raise InvalidArgument(f"Could not parse schema definition (schema.type=JSON): {error}.") from error
        check_nesting(self._source)
        dialect = self._source.get("$schema", DIALECT) if isinstance(self._source, dict) else DIALECT
        if not isinstance(dialect, str) or dialect.rstrip("#") != DIALECT:
            shown = str(dialect)[:_SHOWN]
            raise InvalidArgument(
                f"The field schema.definition has the $schema {shown}; it must be {DIALECT}, or absent."
            )
        weighing = _Weighing(self._source)
        try:
            self._weight = weighing.of(self._source, is_root=True)
        except RecursionError:  # a long chain of references
            self._weight = inf
        if self._weight > MAX_QUICK_WEIGHT or weighing.patterns > MAX_QUICK_PATTERNS:
            self._weight = inf
        self._validator: Any = None

    def compile(self) -> None:
        """Compiles the definition, which may take long unless is_quick().

        Raises InvalidArgument with the bare reason.
        """
        if self._validator is not None:
            return
        try:
            self._validator = jsonschema_rs.Draft202012Validator(
                self._source, offline=True, pattern_options=_PATTERNS, mask="the value"
            )
        except jsonschema_rs.ValidationError as error:
            raise InvalidArgument(f"{_where(error) or 'the definition'}: {_said(error)}.") from error
        except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
            raise InvalidArgument(f"{_said(error)}.") from error

    def is_quick(self, size: int, encoding: str, count: int = 1) -> bool:
        return size <= MAX_QUICK_BYTES and self._weight * (size + count) <= MAX_QUICK_WORK

    def are_all_like(self, messages: Sequence[bytes], encoding: str) -> bool:
        return all_pass(self.check, messages, encoding)

    def to_json(self, data: bytes) -> bytes:
        return data

    def check(self, data: bytes, encoding: str) -> None:
        """Raises Mismatch."""
        if encoding != "JSON":
            raise Mismatch("messages of a schema of type JSON are in JSON")
        self.compile()
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Mismatch(_said(error)) from error
        try:
            if not self._validator.is_valid(value):
                self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            raise Mismatch(f"{_where(error) or 'the message'}: {_said(error)}") from error
        except (ValueError, OverflowError) as error:
            raise Mismatch("it is nested too deep, or a number is too large") from error


def json_incompatibility(reader: str, writer: str) -> str:
    """Explains why messages of the writer's definition may not satisfy the reader's.

    "": it is certain that they do.
    """
    try:
        parsed = [jsonschema_rs.canonicalize(json.loads(each), offline=True) for each in (reader, writer)]
    except (jsonschema_rs.ReferencingError, ValueError, TypeError) as error:
        return f"They cannot be compared: {_said(error)}"
    answer = parsed[0].covers(parsed[1])
    if answer == jsonschema_rs.canonical.Containment.YES or json.loads(reader) == json.loads(writer):
        return ""
    if answer == jsonschema_rs.canonical.Containment.NO:
        return "there are values that one takes and the other refuses"
    return "it cannot be shown that one takes all values that the other takes"


class _Weighing:
    """The complexity of a definition, with the targets of references in their place."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[str, float] = {}
        self.patterns = 0

    def of(self, node: Any, *, is_root: bool = False) -> float:
        if isinstance(node, list):
            return 1 + sum(map(self.of, node))
        if not isinstance(node, dict):
            return 1
        weight = 1.0
        for key, value in node.items():
            if isinstance(value, str):
                weight += self._keyword(key, value, is_root=is_root)
            elif key == "patternProperties" and isinstance(value, dict):
                weight += sum(self._pattern(pattern) for pattern in value) + self.of(value)
            else:
                weight += self.of(value)
        return weight

    def _keyword(self, key: str, value: str, *, is_root: bool) -> float:
        if key == "pattern":
            return self._pattern(value)
        if key == "$ref":
            return self._reference(value)
        return inf if key in _ELSEWHERE and not (is_root and key == "$id") else 1

    def _pattern(self, pattern: str) -> float:
        self.patterns += 1
        weight = float(_PATTERN_WEIGHT * len(pattern))
        for least, most in _REPETITION.findall(pattern):
            weight *= max(int(least or 1), int(most or 1), 1)
        return weight

    def _reference(self, reference: str) -> float:
        if reference not in self._known:
            self._known[reference] = inf  # for what refers to itself
            self._known[reference] = self._target(reference)
        return self._known[reference]

    def _target(self, reference: str) -> float:
        if reference != "#" and not reference.startswith("#/"):
            return inf
        node = self._root
        for part in reference.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, dict) or key not in node:
                return inf
            node = node[key]
        return self.of(node)


def _where(error: jsonschema_rs.ValidationError) -> str:
    """A JSON pointer, not for ever; "": the whole."""
    parts = [str(part)[:_SHOWN].replace("~", "~0").replace("/", "~1") for part in error.instance_path]
    return "".join(f"/{part}" for part in parts[:_SHOWN])


def _said(error: BaseException) -> str:
    text = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
    return " ".join(text.split())[:_SHOWN].rstrip(".")
