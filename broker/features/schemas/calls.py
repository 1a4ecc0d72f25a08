"""SchemaService: google.pubsub.v1.Schema and what it means, and the calls."""

from typing import Any

from broker.api.generated import messages
from broker.api.google.call import EMPTY, Answer, ResourceCall
from broker.api.google.requests import page_of, project_name
from broker.api.google.schema_settings import encoding_of, enum_name
from broker.api.google.times import from_datetime
from broker.api.permissions import visible_in
from broker.features.schemas.schema import Schema
from broker.model.names import random_name
from broker.model.schema_settings import SchemaOptions

_BASIC, _FULL = 1, 2  # google.pubsub.v1.SchemaView; unspecified: as each call has it
_UNKNOWN_TYPE = 0  # unspecified: one that is not Google's


def schema_from(message: Any, options: SchemaOptions, name: str = "") -> Schema:
    """The schema that a call wants; what only answers have is not looked at."""
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


def _answer(schema: Schema, view: int = _FULL) -> Answer:
    return Answer(schema_message(schema, view), schema)


async def create_schema(call: ResourceCall, request: Any) -> Answer:
    parent = project_name(request.parent)
    name = f"{parent}/schemas/{request.schema_id}"
    if not request.schema_id:
        name = random_name(beside=parent, collection="schemas")
    return _answer(
        await call.services.schemas.create_schema(schema_from(request.schema, call.schema_options, name))
    )


async def get_schema(call: ResourceCall, request: Any) -> Answer:
    return _answer(await call.services.schemas.get_schema(request.name), request.view or _FULL)


async def list_schemas(call: ResourceCall, request: Any) -> Answer:
    project = project_name(request.parent)
    page = page_of(request, visible_in(call.allowed, project))
    found, token = await call.services.schemas.list_schemas(project, page)
    shown = [schema_message(schema, request.view) for schema in found]
    return Answer(messages.ListSchemasResponse(schemas=shown, next_page_token=token), list(found))


async def list_schema_revisions(call: ResourceCall, request: Any) -> Answer:
    found, token = await call.services.schemas.list_revisions(request.name, page_of(request))
    shown = [schema_message(schema, request.view) for schema in found]
    return Answer(messages.ListSchemaRevisionsResponse(schemas=shown, next_page_token=token), list(found))


async def commit_schema(call: ResourceCall, request: Any) -> Answer:
    wanted = schema_from(request.schema, call.schema_options)
    return _answer(await call.services.schemas.commit_schema(request.name, wanted))


async def rollback_schema(call: ResourceCall, request: Any) -> Answer:
    return _answer(await call.services.schemas.rollback_schema(request.name, request.revision_id))


async def delete_schema_revision(call: ResourceCall, request: Any) -> Answer:
    return _answer(await call.services.schemas.delete_revision(request.name, request.revision_id))


async def delete_schema(call: ResourceCall, request: Any) -> Answer:
    await call.services.schemas.delete_schema(request.name)
    return EMPTY


async def validate_schema(call: ResourceCall, request: Any) -> Answer:
    schema = schema_from(request.schema, call.schema_options, request.schema.name)
    await call.services.schemas.validate_schema(project_name(request.parent), schema)
    return Answer(messages.ValidateSchemaResponse())


async def validate_message(call: ResourceCall, request: Any) -> Answer:
    schema = schema_from(request.schema, call.schema_options) if request.HasField("schema") else None
    await call.services.schemas.validate_message(
        project_name(request.parent), request.name, schema, request.message, encoding_of(request)
    )
    return Answer(messages.ValidateMessageResponse())
