"""Protobuf schemas and messages, by Google's library; protoc compiles definitions in another process (apart.py)."""

from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from broker.features.schemas.checking.mismatch import Misfit, Mismatch, all_pass
from broker.features.schemas.checking.protobuf_json import ShapeChecks
from broker.features.schemas.checking.strict_json import decode_json
from broker.model.errors import InvalidArgument

MAX_TYPES = 5_000  # messages and enums of a definition
MAX_QUICK_BYTES = {"BINARY": 500_000, "JSON": 30_000}  # some 20 ms; JSON is read by Python
_SHOWN = 300


class ProtobufSchema:
    """A compiled definition that messages can be checked against."""

    def __init__(self, compiled: bytes, root_message: str) -> None:
        """`compiled`: a FileDescriptorSet, `root_message` the full name of the message in it.

        Raises InvalidArgument.
        """
        kind: Any = descriptor_of(compiled, root_message)
        self._class: Any = GetMessageClass(kind)
        self._name = kind.name
        self._check_shape = ShapeChecks().of(kind)

    def is_quick(self, size: int, encoding: str, count: int = 1) -> bool:
        return size <= MAX_QUICK_BYTES[encoding]

    def are_all_like(self, messages: Sequence[bytes], encoding: str) -> bool:
        return all_pass(self.check, messages, encoding)

    def check(self, data: bytes, encoding: str) -> None:
        """Raises Mismatch."""
        message: Message = self._class()
        if encoding == "BINARY":
            _parse(message, data)
        else:
            self._parse_json(message, data)

    def to_json(self, data: bytes) -> bytes:
        """In protobuf's JSON mapping, with the names of fields as the definition has them.  Raises Mismatch."""
        message: Message = self._class()
        _parse(message, data)
        try:
            text = json_format.MessageToJson(message, preserving_proto_field_name=True, indent=None)
        except (json_format.Error, RecursionError, ValueError, TypeError) as error:
            raise Mismatch(f"it cannot be decoded: {_said(error)}") from error
        return text.encode()

    def _parse_json(self, message: Message, data: bytes) -> None:
        try:
            value = decode_json(data.decode(), unique=True)
            self._check_shape(value)
            json_format.ParseDict(value, message)
        except UnicodeDecodeError as error:
            raise Mismatch("it is not UTF-8") from error
        except Misfit as misfit:
            raise Mismatch(misfit.said(self._name)) from misfit
        except (json_format.ParseError, RecursionError, ValueError, TypeError, AttributeError) as error:
            raise Mismatch(_said(error)) from error
        _check_complete(message)


def _parse(message: Message, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise Mismatch("it is not protobuf, or a field is not of its type") from error
    _check_complete(message)
    size = message.ByteSize()
    message.DiscardUnknownFields()
    if message.ByteSize() != size:
        raise Mismatch("it has a field that the schema has not, or that is of another type there")


def _check_complete(message: Message) -> None:
    """proto2 has required fields."""
    if not message.IsInitialized():
        missing = ", ".join(message.FindInitializationErrors())  # type: ignore[attr-defined]
        raise Mismatch(f"required fields are missing: {missing[:_SHOWN]}")


def descriptor_of(compiled: bytes, root_message: str) -> Descriptor:
    """The message of this full name in a FileDescriptorSet.  Raises InvalidArgument."""
    files = _files(compiled)
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindMessageTypeByName(root_message)
    except (TypeError, KeyError, ValueError, UnicodeError) as error:
        raise InvalidArgument(
            f"Could not parse schema definition (schema.type=PROTOCOL_BUFFER): {_said(error)}."
        ) from error


def root_of(compiled: bytes) -> str:
    """The full name of the one message of a definition.  Raises InvalidArgument if there is not one."""
    [file] = _files(compiled)
    for kind, has in (("imports", file.dependency), ("services", file.service), ("extensions", file.extension)):
        if has:
            raise InvalidArgument(
                f"The field schema.definition has {kind}, which a schema of messages cannot have."
            )
    if len(file.message_type) != 1:
        raise InvalidArgument(
            f"The field schema.definition has {len(file.message_type)} messages at the top; it must have one, with "
            "all others within it."
        )
    return ".".join(filter(None, (file.package, file.message_type[0].name)))


def _files(compiled: bytes) -> list[FileDescriptorProto]:
    try:
        files = list(FileDescriptorSet.FromString(compiled).file)
    except DecodeError as error:
        raise InvalidArgument(
            "The field schema.compiledProtoSchema.compiledBytes is no FileDescriptorSet."
        ) from error
    if sum(len(file.enum_type) + sum(map(_types, file.message_type)) for file in files) > MAX_TYPES:
        raise InvalidArgument(f"The field schema.definition has more than {MAX_TYPES} messages and enums.")
    return files


def _types(message: DescriptorProto) -> int:
    return 1 + len(message.enum_type) + sum(map(_types, message.nested_type))


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:_SHOWN].rstrip(".")
