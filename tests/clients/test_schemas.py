"""What Google's samples show of schemas in the Python client, over gRPC (A11, D2)."""

import io
import json
from collections.abc import Iterator

import fastavro
import grpc
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.cloud.pubsub_v1 import SchemaServiceClient
from google.pubsub_v1 import types
from google.pubsub_v1.services.schema_service.transports import SchemaServiceGrpcTransport

from tests.fixtures.google import SECONDS, Google, Handler

pytestmark = [pytest.mark.slow, pytest.mark.ci]

STATE = {
    "type": "record",
    "namespace": "utilities",
    "name": "State",
    "fields": [{"name": "name", "type": "string"}, {"name": "post_abbr", "type": "string"}],
}
WITH_CAPITAL = {
    **STATE,
    "fields": [*STATE["fields"], {"name": "capital", "type": ["null", "string"], "default": None}],  # type: ignore[misc]
}


@pytest.fixture
def schemas(emulator_host: str) -> Iterator[SchemaServiceClient]:
    with grpc.insecure_channel(emulator_host) as channel:
        transport = SchemaServiceGrpcTransport(channel=channel)
        yield SchemaServiceClient(transport=transport, client_options=ClientOptions())


def _avro(name: str = "", definition: object = STATE) -> types.Schema:
    return types.Schema(name=name, type_=types.Schema.Type.AVRO, definition=json.dumps(definition))


def _encoded(state: dict[str, str], encoding: str) -> bytes:
    if encoding == "JSON":
        return json.dumps(state).encode()
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(STATE), state)
    return out.getvalue()


def _decoded(data: bytes, encoding: str) -> object:
    return json.loads(data) if encoding == "JSON" else fastavro.schemaless_reader(io.BytesIO(data), STATE, None)


def test_a_schema_lives_as_the_samples_have_it(schemas: SchemaServiceClient, project: str) -> None:
    path = f"{project}/schemas/states"
    created = schemas.create_schema(request={"parent": project, "schema": _avro(path), "schema_id": "states"})
    assert (created.name, created.type_) == (path, types.Schema.Type.AVRO)
    schemas.validate_schema(request={"parent": project, "schema": _avro()})
    committed = schemas.commit_schema(request={"name": path, "schema": _avro(path, WITH_CAPITAL)})
    assert committed.revision_id != created.revision_id
    listed = list(schemas.list_schema_revisions(request={"name": path}))
    assert [revision.revision_id for revision in listed] == [committed.revision_id, created.revision_id]
    assert schemas.get_schema(request={"name": f"{path}@{created.revision_id}"}) == created
    rolled = schemas.rollback_schema(request={"name": path, "revision_id": created.revision_id})
    assert json.loads(rolled.definition) == STATE
    deleted = f"{path}@{created.revision_id}"
    assert schemas.delete_schema_revision(request={"name": deleted}).revision_id == created.revision_id
    assert [schema.name for schema in schemas.list_schemas(request={"parent": project})] == [path]
    schemas.delete_schema(request={"name": path})
    with pytest.raises(exceptions.NotFound):
        schemas.get_schema(request={"name": path})


@pytest.mark.parametrize("encoding", ["JSON", "BINARY"])
def test_records_are_published_and_received_in_either_encoding(
    google: Google, schemas: SchemaServiceClient, project: str, encoding: str
) -> None:
    path = f"{project}/schemas/states"
    created = schemas.create_schema(request={"parent": project, "schema": _avro(), "schema_id": "states"})
    settings = types.SchemaSettings(schema=path, encoding=types.Encoding[encoding])
    google.publisher.create_topic(request={"name": google.topic, "schema_settings": settings})
    assert google.publisher.get_topic(topic=google.topic).schema_settings == settings
    google.subscriber.create_subscription(name=google.subscription, topic=google.topic)
    alaska = {"name": "Alaska", "post_abbr": "AK"}
    google.publisher.publish(google.topic, _encoded(alaska, encoding)).result(SECONDS)
    with pytest.raises(exceptions.InvalidArgument, match="Message failed schema validation"):
        google.publisher.publish(google.topic, b"neither").result(SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        [message] = handler.wait_for(1)
    assert _decoded(message.data, message.attributes["googclient_schemaencoding"]) == alaska
    assert message.attributes["googclient_schemaname"] == path
    assert message.attributes["googclient_schemarevisionid"] == created.revision_id


def test_protobuf_is_published_and_received_in_either_encoding(
    google: Google, schemas: SchemaServiceClient, project: str
) -> None:
    definition = 'syntax = "proto3"; package utilities; message State { string name = 1; string post_abbr = 2; }'
    schema = types.Schema(type_=types.Schema.Type.PROTOCOL_BUFFER, definition=definition)
    created = schemas.create_schema(request={"parent": project, "schema": schema, "schema_id": "states"})
    sent = {
        types.Encoding.BINARY: b"\n\x06Alaska\x12\x02AK",
        types.Encoding.JSON: b'{"name": "Alaska", "postAbbr": "AK"}',
    }
    settings = types.SchemaSettings(schema=created.name, encoding=types.Encoding.BINARY)
    google.publisher.create_topic(request={"name": google.topic, "schema_settings": settings})
    google.subscriber.create_subscription(name=google.subscription, topic=google.topic)
    for encoding, data in sent.items():
        topic = types.Topic(name=google.topic, schema_settings={"schema": created.name, "encoding": encoding})
        google.publisher.update_topic(request={"topic": topic, "update_mask": {"paths": ["schema_settings"]}})
        google.publisher.publish(google.topic, data).result(SECONDS)
        with pytest.raises(exceptions.InvalidArgument, match="Message failed schema validation"):
            google.publisher.publish(google.topic, b"\xff{").result(SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        received = handler.wait_for(2)
    reported = {(message.attributes["googclient_schemaencoding"], message.data) for message in received}
    assert reported == {(encoding.name, data) for encoding, data in sent.items()}


def test_a_subscriber_reads_each_message_by_the_revision_that_it_was_written_by(
    google: Google, schemas: SchemaServiceClient, project: str
) -> None:
    """The samples with revisions: a topic bound by two of them; what was written is resolved to the newest."""
    path = f"{project}/schemas/states"
    first = schemas.create_schema(request={"parent": project, "schema": _avro(), "schema_id": "states"})
    last = schemas.commit_schema(request={"name": path, "schema": _avro(path, WITH_CAPITAL)})
    ids = {"first_revision_id": first.revision_id, "last_revision_id": last.revision_id}
    settings = types.SchemaSettings(schema=path, encoding=types.Encoding.BINARY, **ids)
    google.publisher.create_topic(request={"name": google.topic, "schema_settings": settings})
    google.subscriber.create_subscription(name=google.subscription, topic=google.topic)
    google.publisher.publish(google.topic, _encoded({"name": "Alaska", "post_abbr": "AK"}, "BINARY")).result(
        SECONDS
    )
    out = io.BytesIO()
    hawaii = {"name": "Hawaii", "post_abbr": "HI", "capital": "Honolulu"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(WITH_CAPITAL), hawaii)
    google.publisher.publish(google.topic, out.getvalue()).result(SECONDS)
    handler = Handler()
    with google.subscribed(handler):
        received = handler.wait_for(2)
    read = []
    for message in received:
        written = f"{path}@{message.attributes['googclient_schemarevisionid']}"
        writer = json.loads(schemas.get_schema(request={"name": written}).definition)
        read.append(fastavro.schemaless_reader(io.BytesIO(message.data), writer, WITH_CAPITAL))
    assert {"name": "Alaska", "post_abbr": "AK", "capital": None} in read
    assert hawaii in read
