"""Avro schemas and messages, by fastavro.

fastavro is C: what is nested too deep ends the process, and what has values of no bytes never ends.  So a
definition is measured before a message is read by it (avro_measure.py).
"""

import json
from collections.abc import Sequence
from io import BytesIO, StringIO
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException
from fastavro.validation import ValidationError

from broker.domain.errors import InvalidArgument
from broker.payload_schemas.avro_measure import check_nesting, measure
from broker.payload_schemas.mismatch import Mismatch

MAX_RECURSIVE_BYTES = 1_000  # of a message that can be nested once a byte; some thousands of levels fill the stack
MAX_QUICK_VALUES = {
    "BINARY": 200_000,
    "JSON": 30_000,
}  # of what is read at once; some 20 ms: JSON is read by Python

_UNREADABLE = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
    StopIteration,
    SchemaParseException,
)
_SHOWN = 300  # characters of what fastavro says


class AvroSchema:
    """A definition that messages can be checked against."""

    def __init__(self, definition: str) -> None:
        """Raises InvalidArgument."""
        try:
            source = json.loads(definition)
            check_nesting(source)
            self._schema = fastavro.parse_schema(source)
            self._size = measure(self._schema)
        except _UNREADABLE as error:
            raise InvalidArgument(
                f"Could not parse schema definition (schema.type=AVRO, schema.definition): {_said(error)}."
            ) from error

    def is_quick(self, size: int, encoding: str, count: int = 1) -> bool:
        """Whether messages of so many bytes in all take little time, memory and stack, whatever is in them."""
        if self._size.is_recursive and size > MAX_RECURSIVE_BYTES:
            return False
        return self._size.values * (size + count if self._size.repeats else count) <= MAX_QUICK_VALUES[encoding]

    def are_all_like(self, messages: Sequence[bytes], encoding: str) -> bool:
        """Whether all are as the schema says: by one reader, which costs less than one for each."""
        return (self._are_binary if encoding == "BINARY" else self._are_json)(messages)

    def check(self, data: bytes, encoding: str) -> None:
        """Raises Mismatch."""
        if encoding == "BINARY":
            self._check_binary(data)
        else:
            self._check_json(data)

    def _check_binary(self, data: bytes) -> None:
        file = BytesIO(data)
        try:
            fastavro.schemaless_reader(file, self._schema, None)
        except _UNREADABLE as error:
            raise Mismatch(f"byte {file.tell()}: {_reason(error)}") from error
        if file.tell() != len(data):
            raise Mismatch(f"byte {file.tell()}: it ends here, and {len(data) - file.tell()} more bytes follow")

    def _are_binary(self, messages: Sequence[bytes]) -> bool:
        file, schema, end = BytesIO(b"".join(messages)), self._schema, 0
        read, tell = fastavro.schemaless_reader, file.tell
        try:
            for data in messages:
                read(file, schema, None)
                end += len(data)
                if tell() != end:
                    return False
        except _UNREADABLE:
            return False
        return True

    def _are_json(self, messages: Sequence[bytes]) -> bool:
        schema = self._schema
        try:
            lines = "\n".join([json.dumps(json.loads(data.decode())) for data in messages])
            for value in fastavro.json_reader(StringIO(lines), schema):
                fastavro.validate(value, schema, raise_errors=True, strict=True)
        except (ValidationError, *_UNREADABLE):
            return False
        return True

    def _check_json(self, data: bytes) -> None:
        """By Avro's JSON encoding: a union's value other than null is {"type": value}."""
        try:
            text = json.dumps(json.loads(data.decode()))  # of one line, of which the reader makes a record
        except (ValueError, RecursionError) as error:
            where = f"line {error.lineno} column {error.colno}: " if isinstance(error, json.JSONDecodeError) else ""
            raise Mismatch(f"{where}it is not JSON") from error
        try:
            [value] = fastavro.json_reader(StringIO(text), self._schema)
            fastavro.validate(value, self._schema, raise_errors=True, strict=True)
        except ValidationError as error:
            raise Mismatch(_where(error)) from error
        except _UNREADABLE as error:
            raise Mismatch(_reason(error)) from error


def _said(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if isinstance(error, LookupError | TypeError) else str(error)
    return " ".join(text.split())[:_SHOWN].rstrip(".")


def _reason(error: BaseException) -> str:
    """Not all that it says: it quotes values."""
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, UnicodeDecodeError):
        return "a string is not UTF-8"
    if isinstance(error, IndexError):
        return "an index of a union or an enum is past the end, or it ends too early"
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if str(error) == "no value and no default":
        return "a field is missing"
    return "a value is not of its type"


def _where(error: ValidationError) -> str:
    first: Any = error.errors[0]
    schema = first.schema
    kind = schema.get("type") if isinstance(schema, dict) else schema
    return f"{first.field or 'the message'} must be {kind}, not {type(first.datum).__name__}"
