"""Compiled schemas of any type, against which messages can be checked."""

from collections.abc import Sequence
from typing import Protocol

from broker.features.schemas.checking.avro import AvroSchema
from broker.features.schemas.checking.json_schema import JsonSchema
from broker.features.schemas.checking.protobuf import ProtobufSchema
from broker.features.schemas.schema import AVRO, JSON, PROTOCOL_BUFFER, Schema
from broker.model.errors import InvalidArgument


class CompiledSchema(Protocol):
    def is_quick(self, size: int, encoding: str, count: int = 1) -> bool:
        """Whether messages of so many bytes in all take little time, memory and stack, whatever is in them."""

    def are_all_like(self, messages: Sequence[bytes], encoding: str) -> bool:
        """Whether all are as the schema says, in less time than one by one; which is not, and why, check() says."""

    def check(self, data: bytes, encoding: str) -> None:
        """Raises Mismatch unless the message's data is as the schema says, in the encoding ("JSON", "BINARY")."""

    def to_json(self, data: bytes) -> bytes:
        """Returns the binary data of a message, which was checked, in JSON.  Raises Mismatch."""


def compile_schema(schema: Schema) -> CompiledSchema:
    """Raises InvalidArgument for a definition that is none of its type.  Protobuf's must have been `compiled`."""
    if schema.type == AVRO:
        return AvroSchema(schema.definition)
    if schema.type == PROTOCOL_BUFFER:
        return ProtobufSchema(schema.compiled, schema.root_message)
    if schema.type == JSON:
        return JsonSchema(schema.definition)
    raise InvalidArgument(f"Invalid schema type (schema.type={schema.type}).")
