"""Schemas beyond Google's (A11): of type JSON, and with a compatibility of their own."""

import json
from base64 import b64encode

import pytest

from tests.fixtures.broker import Json, Rest, message
from tests.fixtures.grpc import GrpcRest, channel_to

_ORDER: Json = {
    "$id": "https://shop.example/order.json",
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"id": {"$ref": "#/$defs/id"}, "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    "required": ["id"],
    "additionalProperties": False,
    "$defs": {
        "id": {"type": "string", "pattern": "^[a-z]{2}[0-9]+$"},
        "line": {"type": "object", "properties": {"price/unit": {"type": "number", "minimum": 0}}},
    },
}


async def _create(rest: Rest, definition: object, **beside: str) -> Json:
    body = {"type": "JSON", "definition": json.dumps(definition), **beside}
    return await rest.ok("POST", f"{rest.project}/schemas", body, params={"schemaId": "orders"})


async def _commit(rest: Rest, definition: object, **beside: str) -> tuple[str, str]:
    """The code and the text of an error; "": none."""
    schema = {"type": "JSON", "definition": json.dumps(definition), **beside}
    response = await rest.call("POST", f"{rest.project}/schemas/orders:commit", {"schema": schema})
    error = {} if response.is_success else response.json()["error"]
    return error.get("status", ""), error.get("message", "")


async def test_messages_of_a_topic_are_checked_by_json_schema(rest: Rest, broker_url: str) -> None:
    created = await _create(rest, _ORDER)
    assert created["type"] == "JSON"
    assert (await rest.ok("GET", f"{rest.project}/schemas"))["schemas"][0]["type"] == "JSON"
    settings = {"schema": created["name"], "encoding": "JSON"}
    await rest.create_topic(schemaSettings=settings)
    await rest.create_subscription()
    await rest.publish('{"id": "de1", "lines": [{"price/unit": 0.5}]}')
    for wrong, said in (
        (
            '{"id": "de1", "lines": [{}, {"price/unit": "1"}]}',
            '/lines/1/price~1unit: the value is not of type "number"',
        ),
        ('{"id": "de1", "line": []}', "Additional properties are not allowed"),
        ('{"id": "de1", "lines": [}', "JSON is malformed"),
        ('{"id": "de1", "lines": NaN}', "JSON is malformed"),
    ):
        body = {"messages": [message('{"id": "fr2"}'), message(wrong)]}
        code, text = await rest.error("POST", f"{rest.topic()}:publish", body)
        assert (code, "messages[1].data is not" in text, said in text) == ("INVALID_ARGUMENT", True, True), text
    [received] = await rest.drain()
    assert received["message"]["attributes"]["googclient_schemarevisionid"] == created["revisionId"]
    code, text = await rest.error(
        "PATCH",
        rest.topic(),
        {"topic": {"schemaSettings": {**settings, "encoding": "BINARY"}}, "updateMask": "schemaSettings"},
    )
    assert (code, "of type JSON are in JSON" in text) == ("INVALID_ARGUMENT", True), text
    with channel_to(broker_url) as channel:
        shown = await GrpcRest(channel, rest.project).ok("GET", created["name"])
    assert "type" not in shown
    assert json.loads(shown["definition"]) == _ORDER


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ({"$ref": "http://127.0.0.1:9/other.json"}, "Retrieval is disabled"),
        ({"$ref": "file:///etc/passwd"}, "Retrieval is disabled"),
        ({"$ref": "#/$defs/none"}, "none"),
        ({"pattern": "(?=a)b"}, 'is not a "regex"'),
        ({"pattern": "((a{1000}){1000}){1000}"}, "regex"),
        ({"items": {"type": "text"}}, "/items/type: the value is not valid"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "$schema http://json-schema.org/draft-07/schema#"),
        ([1], "not of types"),
    ],
)
async def test_a_definition_that_is_none_or_reaches_out_is_refused(
    rest: Rest, definition: object, said: str
) -> None:
    body = {"schema": {"type": "JSON", "definition": json.dumps(definition)}}
    code, text = await rest.error("POST", f"{rest.project}/schemas:validate", body)
    assert (code, said in text) == ("INVALID_ARGUMENT", True), text


async def test_a_message_that_follows_a_definition_to_itself_is_read_elsewhere(rest: Rest) -> None:
    tree = {"$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}, "$ref": "#/$defs/n"}
    schema = {"type": "JSON", "definition": json.dumps(tree)}
    path = f"{rest.project}/schemas:validateMessage"
    for text, right in (("[[], [[]]]", True), ("[[], [[1]]]", False), ("[" * 50_000 + "]" * 50_000, False)):
        body = {"schema": schema, "message": b64encode(text.encode()).decode(), "encoding": "JSON"}
        response = await rest.call("POST", path, body)
        assert response.is_success == right, response.text


def _closed(*required: str, **properties: str) -> Json:
    kinds = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": kinds, "required": list(required), "additionalProperties": False}


_FIRST = _closed("id", id="string")
_WIDER, _NARROWER = _closed("id", id="string", note="string"), _closed("id")


@pytest.mark.parametrize(
    ("compatibility", "wider", "narrower"),
    [
        ("BACKWARD", True, False),
        ("BACKWARD_TRANSITIVE", True, False),
        ("FORWARD", False, True),
        ("FORWARD_TRANSITIVE", False, True),
        ("FULL", False, False),
        ("FULL_TRANSITIVE", False, False),
        ("NONE", True, True),
    ],
)
async def test_a_schema_has_a_compatibility_of_its_own(
    rest: Rest, compatibility: str, wider: bool, narrower: bool
) -> None:
    """By JSON Schema: whether each message by the one is as the other says."""
    created = await _create(rest, _FIRST, compatibility=compatibility)
    assert created.get("compatibility", "FULL_TRANSITIVE") == compatibility
    assert (await _commit(rest, {**_FIRST, "title": "Order"}))[0] == ""
    assert (await _commit(rest, _WIDER))[0] == ("" if wider else "INVALID_ARGUMENT")
    if not wider:
        assert (await _commit(rest, _NARROWER))[0] == ("" if narrower else "INVALID_ARGUMENT")


_RECORDS = {
    name: json.dumps({"type": "record", "name": "R", "fields": fields})
    for name, fields in {
        "id": [{"name": "id", "type": "string"}],
        "id, n": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}],
        "id, n?": [{"name": "id", "type": "string"}, {"name": "n", "type": "int", "default": 0}],
        "id: int": [{"name": "id", "type": "int"}],
    }.items()
}
_PROTOS = {
    name: f'syntax="proto2"; message M {{ {fields} }}'
    for name, fields in {
        "id": "optional string id = 1;",
        "id, n": "optional string id = 1; required int32 n = 2;",
        "id: int": "optional int32 id = 1;",
        "id, n*": "optional string id = 1; repeated int32 n = 2;",
    }.items()
}


@pytest.mark.parametrize(
    ("definitions", "compatibility", "story", "taken"),
    [
        (_RECORDS, "BACKWARD", ["id, n", "id", "id, n?"], [True, True]),
        (_RECORDS, "BACKWARD", ["id", "id, n"], [False]),
        (_RECORDS, "FORWARD", ["id", "id, n", "id"], [True, False]),
        (_RECORDS, "FULL", ["id, n", "id, n?", "id"], [True, True]),
        (_RECORDS, "FULL_TRANSITIVE", ["id, n", "id, n?", "id"], [True, False]),
        (_RECORDS, "BACKWARD_TRANSITIVE", ["id, n?", "id", "id, n"], [True, False]),
        (_RECORDS, "NONE", ["id", "id: int"], [True]),
        (_PROTOS, "BACKWARD", ["id, n", "id", "id, n"], [True, False]),
        (_PROTOS, "FORWARD", ["id", "id, n", "id"], [True, False]),
        (_PROTOS, "FULL", ["id", "id, n*"], [False]),
        (_PROTOS, "BACKWARD", ["id", "id, n*"], [True]),
        (_PROTOS, "FORWARD", ["id", "id: int"], [False]),
        (_PROTOS, "NONE", ["id", "id: int"], [True]),
    ],
)
async def test_commits_are_asked_for_no_more_than_the_compatibility_says(
    rest: Rest, definitions: dict[str, str], compatibility: str, story: list[str], taken: list[bool]
) -> None:
    kind = "AVRO" if definitions is _RECORDS else "PROTOCOL_BUFFER"
    body = {"type": kind, "definition": definitions[story[0]], "compatibility": compatibility}
    await rest.ok("POST", f"{rest.project}/schemas", body, params={"schemaId": "orders"})
    for name, right in zip(story[1:], taken, strict=True):
        commit = {"schema": {"type": kind, "definition": definitions[name]}}
        response = await rest.call("POST", f"{rest.project}/schemas/orders:commit", commit)
        assert response.is_success == right, (name, response.text)


async def test_a_commit_may_change_the_compatibility_for_itself_and_those_to_come(rest: Rest) -> None:
    await _create(rest, _FIRST)
    code, text = await _commit(rest, _WIDER)
    assert (code, "the new one may not be as the other says" in text) == ("INVALID_ARGUMENT", True), text
    assert await _commit(rest, _WIDER, compatibility="SIDEWAYS") != ("", "")
    assert await _commit(rest, _WIDER, compatibility="BACKWARD") == ("", "")
    assert (await rest.ok("GET", f"{rest.project}/schemas/orders"))["compatibility"] == "BACKWARD"
    assert await _commit(rest, True) == ("", "")
    assert (await _commit(rest, _WIDER))[0] == "INVALID_ARGUMENT"
