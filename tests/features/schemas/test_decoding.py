"""Messages are shown in JSON by the schema of their topic."""

import base64
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import fastavro
import pytest

from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, Rest

AVRO = json.dumps({
    "type": "record", "name": "Sale",
    "fields": [
        {"name": "card", "type": "string"}, {"name": "total", "type": ["null", "long"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
})  # fmt: skip
SALE = {"card": "4111-SECRET", "total": 12, "at": 1_700_000_000_000}
PROTO = 'syntax = "proto3"; message Sale { string card_number = 1; int64 total = 2; repeated double rates = 3; }'


def avro_bytes(value: Json = SALE, definition: str = AVRO) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(definition)), value)
    return out.getvalue()


async def make(rest: Rest, definition: str, kind: str, encoding: str, *data: bytes) -> list[str]:
    schema = {"type": kind, "definition": definition}
    await rest.ok("POST", f"{rest.project}/schemas", schema, params={"schemaId": "sale"})
    settings = {"schema": f"{rest.project}/schemas/sale", "encoding": encoding}
    await rest.create_topic(schemaSettings=settings, messageRetentionDuration="600s")
    return await rest.publish(*[{"data": base64.b64encode(each).decode()} for each in data])


async def decode(rest: Rest, message_id: str, **query: str) -> Json:
    return await rest.ok("GET", f"{rest.topic()}/messages/{message_id}:decode", params=query)


async def test_avro_in_binary_is_shown_in_its_json_encoding(rest: Rest) -> None:
    [message_id] = await make(rest, AVRO, "AVRO", "BINARY", avro_bytes())
    found = await decode(rest, message_id)
    assert found["decoded"] == {"card": "4111-SECRET", "total": {"long": 12}, "at": 1_700_000_000_000}
    assert found["schema"].startswith(f"{rest.project}/schemas/sale@")
    assert (found["type"], found["encoding"], found["dataSize"]) == ("AVRO", "BINARY", len(avro_bytes()))


async def test_protobuf_in_binary_is_shown_with_the_names_of_the_definition(rest: Rest) -> None:
    data = b"\x0a\x044111" + b"\x10\x80\x80\x80\x80\x80\x80\x80\x10"
    [message_id] = await make(rest, PROTO, "PROTOCOL_BUFFER", "BINARY", data)
    assert (await decode(rest, message_id))["decoded"] == {"card_number": "4111", "total": str(2**53)}


async def test_json_is_shown_as_it_was_published(rest: Rest) -> None:
    definition = '{"type": "object", "required": ["n"]}'
    [message_id] = await make(rest, definition, "JSON", "JSON", b'{"n": 12345678901234567890.50}')
    path = f"{rest.topic()}/messages/{message_id}:decode"
    assert "12345678901234567890.50" in (await rest.call("GET", path)).text


async def test_a_message_is_decoded_by_the_revision_of_its_publish_or_by_another(rest: Rest) -> None:
    [message_id] = await make(rest, AVRO, "AVRO", "BINARY", avro_bytes())
    schema = f"{rest.project}/schemas/sale"
    first = (await rest.ok("GET", schema))["revisionId"]
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "shop", "type": "string", "default": ""})
    definition = {"name": schema, "type": "AVRO", "definition": json.dumps(newer)}
    second = (await rest.ok("POST", f"{schema}:commit", {"schema": definition}))["revisionId"]
    assert (await decode(rest, message_id))["schema"] == f"{schema}@{first}"
    status, text = await rest.error(
        "GET", f"{rest.topic()}/messages/{message_id}:decode", params={"revision": second}
    )
    assert status == "FAILED_PRECONDITION"
    assert second in text


async def test_what_cannot_be_decoded_is_refused_with_the_reason(rest: Rest) -> None:
    await rest.create_topic("plain", messageRetentionDuration="600s")
    [plain] = await rest.publish("a", topic="plain")
    status, text = await rest.error("GET", f"{rest.topic('plain')}/messages/{plain}:decode")
    assert status == "FAILED_PRECONDITION"
    assert "no schema" in text
    [message_id] = await make(rest, AVRO, "AVRO", "BINARY", avro_bytes())
    path = f"{rest.topic()}/messages/{message_id}:decode"
    for revision, expected in (("xyz", "INVALID_ARGUMENT"), ("00000000", "NOT_FOUND")):
        status, text = await rest.error("GET", path, params={"revision": revision})
        assert status == expected
        assert revision in text
    gone = f"{rest.topic()}/messages/{int(message_id) + 1_000}:decode"
    assert (await rest.error("GET", gone))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.topic('none')}/messages/{message_id}:decode"))[0] == "NOT_FOUND"
    assert (await rest.error("GET", f"{rest.topic()}/messages/12:decode"))[0] in ("INVALID_ARGUMENT", "NOT_FOUND")
    await rest.ok("DELETE", f"{rest.project}/schemas/sale")
    status, _ = await rest.error("GET", path)
    assert status in ("NOT_FOUND", "FAILED_PRECONDITION")


async def test_a_value_that_json_has_not_is_refused(rest: Rest) -> None:
    definition = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]})
    [message_id] = await make(rest, definition, "AVRO", "BINARY", avro_bytes({"x": float("nan")}, definition))
    status, text = await rest.error("GET", f"{rest.topic()}/messages/{message_id}:decode")
    assert status == "FAILED_PRECONDITION"
    assert "NaN" in text


@pytest.fixture
async def broker(clone: Callable[[], Any]) -> AsyncIterator[Guarded]:
    with clone() as database_url:
        async with guarded(database_url) as running:
            yield running


async def test_fields_are_masked_once_the_message_is_decoded(broker: Guarded) -> None:
    rest = Rest(broker.client, broker.project)
    broker.client.headers.update(broker.bearer())
    [message_id] = await make(rest, AVRO, "AVRO", "BINARY", avro_bytes())
    await rest.ok("PUT", f"{rest.project}/maskingRules/cards", {"fields": ["$.card"]})
    path = f"{rest.topic()}/messages/{message_id}"
    seen = {}
    for role in ("messageViewer", "messageAttributesViewer", "viewer"):
        account = await broker.account(f"some-{role.lower()}", role=f"roles/pubsub.{role}")
        headers = broker.bearer(await broker.key(account))
        assert "4111" not in (await broker.call("GET", path, headers=headers)).text
        seen[role] = await broker.call("GET", f"{path}:decode", headers=headers)
    assert seen["messageViewer"].json()["decoded"] | {"at": 0} == {
        "card": "[masked]", "total": {"long": 12}, "at": 0,
    }  # fmt: skip
    assert seen["messageViewer"].json()["masked"]["rules"] == [f"{rest.project}/maskingRules/cards"]
    assert {seen[role].status_code for role in ("messageAttributesViewer", "viewer")} == {403}
    assert (await decode(rest, message_id))["decoded"]["card"] == "4111-SECRET"


async def test_the_error_for_a_message_that_cannot_be_shown_quotes_nothing_that_is_masked(broker: Guarded) -> None:
    rest = Rest(broker.client, broker.project)
    broker.client.headers.update(broker.bearer())
    definition = json.dumps({"type": "record", "name": "R", "fields": [{"name": "x", "type": "double"}]})
    [message_id] = await make(rest, definition, "AVRO", "BINARY", avro_bytes({"x": float("nan")}, definition))
    account = await broker.account("some-viewer", role="roles/pubsub.messageViewer")
    headers = broker.bearer(await broker.key(account))
    path = f"{rest.topic()}/messages/{message_id}:decode"
    quoted = await broker.call("GET", path, headers=headers)
    await rest.ok("PUT", f"{rest.project}/maskingRules/numbers", {"fields": ["$.x"]})
    masked = await broker.call("GET", path, headers=headers)
    for found, is_quoted in ((quoted, True), (masked, False)):
        assert found.json()["error"]["status"] == "FAILED_PRECONDITION"
        assert ("NaN" in found.text) == is_quoted, found.text
