"""The calls of SchemaService, and the conversion from and to google.pubsub.v1.Schema."""

from collections.abc import Mapping
from typing import Any

import msgspec

from broker.api.generated import messages
from broker.api.google.call import Answer, ResourceCall
from broker.api.google.requests import page_of, project_name
from broker.api.google.schema_settings import encoding_of, enum_name
from broker.api.google.times import from_datetime
from broker.api.permissions import visible_in
from broker.api.rest.codec.requests import convert_json
from broker.features.schemas.schema import JSON, Schema
from broker.features.schemas.service import SchemaService
from broker.model.names import random_name
from broker.model.preview import Undone
from broker.model.schema_settings import NO_OPTIONS, Compatibility, SchemaOptions

_BASIC, _FULL = 1, 2  # google.pubsub.v1.SchemaView; unspecified: as each call has it
_UNKNOWN_TYPE = 0  # unspecified: one that is not Google's


class _SchemaFields(msgspec.Struct):
    type: str = ""
    compatibility: Compatibility | None = None


def decode_schema_options(fields: Mapping[str, Any]) -> SchemaOptions:
    """Raises InvalidArgument that names the field."""
    body = convert_json(
        {name: fields[name] for name in _SchemaFields.__struct_fields__ if name in fields}, _SchemaFields
    )
    return SchemaOptions(type=body.type, compatibility=body.compatibility)


def schema_from(message: Any, options: SchemaOptions, name: str = "") -> Schema:
    """Decodes the schema of a call; fields that only answers have are ignored."""
    return Schema(
        name=name,
        type=options.type or enum_name(message, "type_"),
        compatibility=options.compatibility,
        definition=message.definition,
        compiled=message.compiled_proto_schema.compiled_bytes,
        root_message=message.compiled_proto_schema.root_message,
    )


def schema_message(schema: Schema, view: int = _FULL) -> Any:
    message = messages.Schema(name=schema.name, revision_id=schema.revision_id)
    known = message.DESCRIPTOR.enum_types_by_name["Type"].values_by_name.get(schema.type)
    message.type_ = _UNKNOWN_TYPE if known is None else known.number
    if schema.created_at is not None:
        message.revision_create_time.CopyFrom(from_datetime(schema.created_at))
    if view == _FULL and schema.definition:
        message.definition = schema.definition
    elif view == _FULL:
        message.compiled_proto_schema.compiled_bytes = schema.compiled
        message.compiled_proto_schema.root_message = schema.root_message
    return message


def schema_fields(schema: Schema) -> Mapping[str, Any]:
    """Returns the extensions that differ from their defaults, which are Google's behaviour."""
    kind = {"type": JSON} if schema.type == JSON else {}
    if schema.compatibility in (None, Compatibility.FULL_TRANSITIVE):
        return kind
    return kind | {"compatibility": schema.compatibility}


def _options_of(call: ResourceCall) -> SchemaOptions:
    """Raises InvalidArgument."""
    return NO_OPTIONS if call.extension_fields is None else decode_schema_options(call.extension_fields)


def _answer(schema: Schema, view: int = _FULL) -> Answer:
    return Answer(schema_message(schema, view), schema, schema_fields)


async def create_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    options = _options_of(call)
    parent = project_name(request.parent)
    name = f"{parent}/schemas/{request.schema_id}"
    if not request.schema_id:
        name = random_name(sibling=parent, collection="schemas")
    return _answer(await service.create_schema(schema_from(request.schema, options, name)))


async def get_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    return _answer(await service.get_schema(request.name), request.view or _FULL)


async def list_schemas(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.parent)
    page = page_of(request, visible_in(call.allowed, project))
    found, token = await service.list_schemas(project, page)
    shown = [schema_message(schema, request.view) for schema in found]
    return Answer(messages.ListSchemasResponse(schemas=shown, next_page_token=token), list(found), schema_fields)


async def list_schema_revisions(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    found, token = await service.list_revisions(request.name, page_of(request))
    shown = [schema_message(schema, request.view) for schema in found]
    return Answer(
        messages.ListSchemaRevisionsResponse(schemas=shown, next_page_token=token), list(found), schema_fields
    )


async def commit_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    wanted = schema_from(request.schema, _options_of(call))
    return _answer(await service.commit_schema(request.name, wanted))


async def rollback_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    return _answer(await service.rollback_schema(request.name, request.revision_id))


async def delete_schema_revision(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    delete = service.delete_revision
    try:
        return _answer(await delete(request.name, request.revision_id, safeguards=call.safeguards))
    except Undone as undone:
        return Answer(messages.Schema(), preview=undone.preview)


async def delete_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    return Answer(messages.Empty(), preview=await service.delete_schema(request.name, call.safeguards))


async def validate_schema(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    schema = schema_from(request.schema, _options_of(call), request.schema.name)
    await service.validate_schema(project_name(request.parent), schema)
    return Answer(messages.ValidateSchemaResponse())


async def validate_message(service: SchemaService, call: ResourceCall, request: Any) -> Answer:
    schema = schema_from(request.schema, _options_of(call)) if request.HasField("schema") else None
    await service.validate_message(
        project_name(request.parent), request.name, schema, request.message, encoding_of(request)
    )
    return Answer(messages.ValidateMessageResponse())
