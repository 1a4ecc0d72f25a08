"""Checks Avro schemas and messages against the specification, not against what a library accepts.

A definition is measured before a message is read by it (avro_measure.py), because reading values that take no bytes
might never end.
"""

import json
from collections.abc import Callable, Sequence
from io import BytesIO, StringIO

import fastavro
from fastavro.schema import SchemaParseException

from broker.features.schemas.checking.avro_binary import BinaryChecks
from broker.features.schemas.checking.avro_definition import read_definition
from broker.features.schemas.checking.avro_json import JsonChecks
from broker.features.schemas.checking.avro_measure import measure
from broker.features.schemas.checking.mismatch import Misfit, Mismatch, all_pass
from broker.features.schemas.checking.strict_json import decode_json
from broker.model.errors import InvalidArgument

MAX_QUICK_DEPTH = 300  # values within each other; each takes a call of a function within another one
MAX_QUICK_VALUES = 100_000  # of what is read at once; some 20 ms

_WHOLE = "the message"


class AvroSchema:
    """A definition that messages can be checked against."""

    def __init__(self, definition: str) -> None:
        """Raises InvalidArgument."""
        try:
            self._definition = read_definition(definition)
            self._size = measure(self._definition.schema, self._definition.types)
        except (ValueError, RecursionError) as error:
            what = "it is nested too deep" if isinstance(error, RecursionError) else error
            raise InvalidArgument(
                f"Could not parse schema definition (schema.type=AVRO, schema.definition): {what}."
            ) from error
        self._text = definition
        self._check_binary: Callable[[bytes, int], int] | None = None
        self._check_json: Callable[[object], None] | None = None
        schema = self._definition.schema
        self._name = schema["name"] if isinstance(schema, dict) and "name" in schema else _WHOLE

    def is_quick(self, size: int, encoding: str, count: int = 1) -> bool:
        """Whether messages of so many bytes in all take little time, memory and stack, whatever is in them."""
        depth = self._size.depth * (size + 1 if self._size.is_recursive else 1)
        values = self._size.values * (size + count if self._size.repeats else count)
        return depth <= MAX_QUICK_DEPTH and values <= MAX_QUICK_VALUES

    def are_all_like(self, messages: Sequence[bytes], encoding: str) -> bool:
        return all_pass(self.check, messages, encoding)

    def check(self, data: bytes, encoding: str) -> None:
        """Raises Mismatch."""
        try:
            if encoding == "BINARY":
                self._read_binary(data)
            else:
                self._read_json(data)
        except RecursionError as error:
            raise Mismatch("it is nested too deep") from error

    def to_json(self, data: bytes) -> bytes:
        """In the JSON encoding of Avro, where a value of a union has its type.  Raises Mismatch."""
        try:
            schema = fastavro.parse_schema(json.loads(self._text))
            out = StringIO()
            fastavro.json_writer(out, schema, [fastavro.schemaless_reader(BytesIO(data), schema, None)])
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, SchemaParseException) as error:
            raise Mismatch(f"it cannot be decoded: {error}") from error
        return out.getvalue().strip().encode()

    def _read_binary(self, data: bytes) -> None:
        if self._check_binary is None:
            self._check_binary = BinaryChecks(self._definition.types).of(self._definition.schema)
        try:
            end = self._check_binary(data, 0)
        except IndexError as error:
            raise Mismatch(f"at byte {len(data)} it ends too early") from error
        except Misfit as misfit:
            raise Mismatch(misfit.reason) from misfit
        if end != len(data):
            raise Mismatch(f"at byte {end} the value ends, and {len(data) - end} more bytes follow")

    def _read_json(self, data: bytes) -> None:
        if self._check_json is None:
            self._check_json = JsonChecks(self._definition.types).of(self._definition.schema)
        try:
            value = decode_json(data.decode())
        except UnicodeDecodeError as error:
            raise Mismatch(f"at byte {error.start} it is not UTF-8, and so not JSON") from error
        except ValueError as error:
            raise Mismatch(str(error)) from error
        try:
            self._check_json(value)
        except Misfit as misfit:
            raise Mismatch(misfit.said(self._name)) from misfit
