"""What a schema has in JSON beside Google's fields: the type JSON, and the compatibility; extensions."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.domain.schema import JSON, Compatibility, Schema, SchemaOptions
from broker.front.rest.codec.requests import convert_json


class _Beside(msgspec.Struct):
    type: str = ""
    compatibility: Compatibility | None = None


def decode_schema_options(beside: Mapping[str, Any]) -> SchemaOptions:
    """Raises InvalidArgument that names the field."""
    body = convert_json({name: beside[name] for name in _Beside.__struct_fields__ if name in beside}, _Beside)
    return SchemaOptions(type=body.type, compatibility=body.compatibility)


def schema_json(schema: Schema) -> Mapping[str, Any]:
    """What is not as Google has it."""
    kind = {"type": JSON} if schema.type == JSON else {}
    if schema.compatibility in (None, Compatibility.FULL_TRANSITIVE):
        return kind
    return kind | {"compatibility": schema.compatibility}
