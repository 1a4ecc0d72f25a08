"""Rows of the table of calls for schemas."""

from collections.abc import Sequence
from functools import partial

from broker.api.permissions import LOOK_AT_DATA, Need, Needs, On
from broker.api.rest.resource_handler import WHOLE
from broker.api.rest.routes import Rest
from broker.api.row import PROJECT, SCHEMA, TOPIC, Http, Row, about_resource
from broker.api.rpc import Audit, Kind, Size
from broker.core.viewing.message_views import MessageViews
from broker.features.schemas import calls, decode_rest
from broker.features.schemas.decode_service import DecodeService
from broker.features.schemas.service import SchemaService


def make_rpcs(service: SchemaService, decoding: DecodeService, views: MessageViews) -> Sequence[Row]:
    # fmt: off
    return [
        about_resource(
            name="SchemaService.CreateSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CREATE, starts=None,
            needs=Needs(Need("pubsub.schemas.create", "parent", On.PROJECT)),
            handler=partial(calls.create_schema, service), target="parent",
            http=[Http("POST", f"{PROJECT}/schemas", "CreateSchema", "schema")],
        ),
        about_resource(
            name="SchemaService.GetSchema", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.schemas.get", "name")),
            handler=partial(calls.get_schema, service), target="name",
            http=[Http("GET", SCHEMA, "GetSchema")],
        ),
        about_resource(
            name="SchemaService.ListSchemas", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.schemas.list", "parent", On.PROJECT, listed="schemas")),
            handler=partial(calls.list_schemas, service), target="parent",
            http=[Http("GET", f"{PROJECT}/schemas", "ListSchemas")],
        ),
        about_resource(
            name="SchemaService.ListSchemaRevisions",
            kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.schemas.listRevisions", "name")),
            handler=partial(calls.list_schema_revisions, service), target="name",
            http=[Http("GET", f"{SCHEMA}:listRevisions", "ListSchemaRevisions")],
        ),
        about_resource(
            name="SchemaService.CommitSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schemas.commit", "name")),
            handler=partial(calls.commit_schema, service), target="name",
            http=[Http("POST", f"{SCHEMA}:commit", "CommitSchema", WHOLE)],
        ),
        about_resource(
            name="SchemaService.RollbackSchema",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schemas.rollback", "name")),
            handler=partial(calls.rollback_schema, service), target="name",
            http=[Http("POST", f"{SCHEMA}:rollback", "RollbackSchema", WHOLE)],
        ),
        about_resource(
            name="SchemaService.DeleteSchemaRevision",
            kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schemas.delete", "name")),
            handler=partial(calls.delete_schema_revision, service), target="name",
            http=[Http("DELETE", f"{SCHEMA}:deleteRevision", "DeleteSchemaRevision", safeguarded="query")],
        ),
        about_resource(
            name="SchemaService.DeleteSchema", kind=Kind.CHANGE, size=Size.REQUEST, audit=Audit.CHANGE, starts=None,
            needs=Needs(Need("pubsub.schemas.delete", "name")),
            handler=partial(calls.delete_schema, service), target="name",
            http=[Http("DELETE", SCHEMA, "DeleteSchema", safeguarded="query")],
        ),
        about_resource(
            name="SchemaService.ValidateSchema", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(Need("pubsub.schemas.validate", "parent", On.PROJECT)),
            handler=partial(calls.validate_schema, service), target="parent",
            http=[Http("POST", f"{PROJECT}/schemas:validate", "ValidateSchema", WHOLE)],
        ),
        about_resource(
            name="SchemaService.ValidateMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=Needs(
                Need("pubsub.schemas.validate", "parent", On.PROJECT),
                Need("pubsub.schemas.get", "name"),
            ),
            handler=partial(calls.validate_message, service), target="parent",
            http=[Http("POST", f"{PROJECT}/schemas:validateMessage", "ValidateMessage", WHOLE)],
        ),
        Row(
            name="DecodeMessage", kind=Kind.QUERY, size=Size.REQUEST, audit=Audit.USE, starts=None,
            needs=LOOK_AT_DATA,
            rest=[
                Rest(
                    "GET", f"{TOPIC}/messages/*:decode", "DecodeMessage",
                    partial(decode_rest.decode_message, decoding, views), ("revision",),
                ),
            ],
            grpc=[],
        ),
    ]
    # fmt: on
