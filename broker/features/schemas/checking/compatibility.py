"""Checks whether messages of one revision can be read by another: in both directions, as Google requires, or in
one.

https://cloud.google.com/pubsub/docs/commit-schema-revision: for Avro, its rules of schema resolution; for protobuf,
optional fields may be added and removed, and no field may be changed.
"""

import json
from collections.abc import Iterator
from typing import Any

import avro.schema
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.errors import AvroException
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from broker.features.schemas.checking.avro_definition import read_definition
from broker.features.schemas.checking.json_schema import json_incompatibility
from broker.features.schemas.checking.protobuf import descriptor_of
from broker.features.schemas.schema import AVRO, JSON, Schema
from broker.model.schema_settings import Compatibility


def incompatibility(new: Schema, old: Schema, wanted: Compatibility = Compatibility.FULL_TRANSITIVE) -> str:
    """Explains why one of two revisions cannot read messages of the other, as it must; "": it can."""
    if new.type == AVRO:
        return _avro_incompatibility(new.definition, old.definition, wanted)
    if new.type == JSON:
        return _json_incompatibility(new.definition, old.definition, wanted)
    pair = descriptor_of(new.compiled, new.root_message), descriptor_of(old.compiled, old.root_message)
    return next(_protobuf_differences(*pair, wanted), "")


def _ways(new: Any, old: Any, wanted: Compatibility) -> Iterator[tuple[Any, Any, str]]:
    """Yields the pairs of a reader and a writer that are to be compared, and which of them the writer is."""
    if wanted.new_reads_old:
        yield new, old, "old"
    if wanted.old_reads_new:
        yield old, new, "new"


def _json_incompatibility(new: str, old: str, wanted: Compatibility) -> str:
    for reader, writer, which in _ways(new, old, wanted):
        said = json_incompatibility(reader, writer)
        if said:
            return f"Messages of the {which} one may not be as the other says: {said}"
    return ""


def _avro_incompatibility(new: str, old: str, wanted: Compatibility) -> str:
    try:
        parsed: Any = [
            avro.schema.parse(json.dumps(read_definition(definition).schema)) for definition in (new, old)
        ]
    except (AvroException, ValueError, RecursionError) as error:
        return f"They cannot be compared: {str(error)[:300]}"
    checker: Any = ReaderWriterCompatibilityChecker
    for reader, writer, which in _ways(parsed[0], parsed[1], wanted):
        result = checker().get_compatibility(reader, writer)
        if result.compatibility is not SchemaCompatibilityType.compatible:
            said, where = ", ".join(sorted(result.messages)), ", ".join(sorted(result.locations - {"/"}) or ["/"])
            kinds = ", ".join(sorted({kind.name for kind in result.incompatibilities}))
            return f"Messages of the {which} one cannot be read by the other: {kinds}: {said} (at {where})"
    return ""


def _protobuf_differences(new: Descriptor, old: Descriptor, wanted: Compatibility) -> Iterator[str]:
    waiting, seen = [(new, old)], set[tuple[str, str]]()
    while waiting:
        now, before = waiting.pop()
        if (now.full_name, before.full_name) in seen:
            continue
        seen.add((now.full_name, before.full_name))
        yield from _field_differences(now, before, wanted)
        for field in now.fields:
            earlier = before.fields_by_number.get(field.number)
            if earlier is not None and field.message_type is not None and earlier.message_type is not None:
                waiting.append((field.message_type, earlier.message_type))


def _field_differences(now: Descriptor, before: Descriptor, wanted: Compatibility) -> Iterator[str]:
    for number in sorted({field.number for field in (*now.fields, *before.fields)}):
        field, earlier = now.fields_by_number.get(number), before.fields_by_number.get(number)
        if field is None or earlier is None:
            lone = field or earlier
            assert lone is not None
            what = "added" if earlier is None else "removed"
            if _must_stay(lone, wanted, is_new=earlier is None):
                yield f"{lone.name} of type {_type(lone)} is {what}, and only optional fields can be"
        elif _shape(field) != _shape(earlier):
            was = f"{earlier.name} of type {_type(earlier)}"
            yield f"{field.name} of type {_type(field)} is not compatible with {was}"


def _must_stay(field: FieldDescriptor, wanted: Compatibility, *, is_new: bool) -> bool:
    """Returns whether a field that one of two revisions has must be in the other too.

    For one direction a reader ignores unknown fields; for both Google refuses more.
    """
    if wanted.new_reads_old and wanted.old_reads_new:
        return field.is_required or field.is_repeated
    return field.is_required and (wanted.new_reads_old if is_new else wanted.old_reads_new)


def _shape(field: FieldDescriptor) -> tuple[object, ...]:
    """Returns the properties of a field that must not change."""
    oneof = field.containing_oneof
    kind = field.enum_type.name if field.enum_type is not None else ""
    return (
        field.name,
        field.type,
        field.is_repeated,
        field.is_required,
        kind,
        oneof.name if oneof is not None else "",
    )


def _type(field: FieldDescriptor) -> str:
    kind = field.message_type or field.enum_type
    types: Any = FieldDescriptorProto.Type
    name = kind.name if kind is not None else types.Name(field.type).removeprefix("TYPE_").lower()
    return f"repeated {name}" if field.is_repeated else name
