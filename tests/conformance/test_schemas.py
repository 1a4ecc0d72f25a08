"""Schemas (A11): SchemaService as Google documents it, over both APIs."""

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from broker.features.schemas.schema import MAX_DEFINITION_BYTES, MAX_REVISIONS
from tests.fixtures.broker import Json, Rest


def record(name: str = "Order", **fields: object) -> str:
    """The definition of a record."""
    listed = [
        {"name": field, "type": kind} | ({"default": None} if "null" in kind and field != "next" else {})  # type: ignore[operator]
        for field, kind in (fields or {"id": "string"}).items()
    ]
    return json.dumps({"type": "record", "name": name, "fields": listed})


def avro(definition: str = "") -> Json:
    return {"type": "AVRO", "definition": definition or record()}


def proto(definition: str) -> Json:
    return {"type": "PROTOCOL_BUFFER", "definition": definition}


async def create(rest: Rest, name: str = "orders", definition: str = "") -> Json:
    body = avro(definition)
    return await rest.ok("POST", f"{rest.project}/schemas", body, params={"schemaId": name})


def _name(rest: Rest, name: str = "orders") -> str:
    return f"{rest.project}/schemas/{name}"


async def _commit(rest: Rest, definition: str) -> Json:
    return await rest.ok("POST", f"{_name(rest)}:commit", {"schema": avro(definition)})


async def _revisions(rest: Rest, **params: object) -> list[str]:
    listed = await rest.ok("GET", f"{_name(rest)}:listRevisions", params=params)
    return [revision["revisionId"] for revision in listed["schemas"]]


async def test_a_schema_is_created_read_listed_and_deleted(rest: Rest) -> None:
    created = await create(rest)
    assert created["name"] == _name(rest)
    assert (created["type"], created["definition"]) == ("AVRO", record())
    assert len(bytes.fromhex(created["revisionId"])) == 4
    assert created["revisionCreateTime"].startswith("20")
    assert await rest.ok("GET", _name(rest)) == created
    basic = {name: value for name, value in created.items() if name != "definition"}
    assert await rest.ok("GET", _name(rest), params={"view": "BASIC"}) == basic
    assert await rest.ok("GET", f"{rest.project}/schemas") == {"schemas": [basic]}
    assert await rest.ok("GET", f"{rest.project}/schemas", params={"view": "FULL"}) == {"schemas": [created]}
    assert await rest.ok("DELETE", _name(rest)) == {}
    assert await rest.error("GET", _name(rest)) == ("NOT_FOUND", "Schema not found (resource=orders).")
    assert await rest.ok("GET", f"{rest.project}/schemas") == {}


async def test_a_schema_without_an_id_is_given_a_name(rest: Rest) -> None:
    created = await rest.ok("POST", f"{rest.project}/schemas", avro())
    assert created["name"].startswith(f"{rest.project}/schemas/")
    assert await rest.ok("GET", created["name"]) == created


async def test_schemas_are_listed_page_by_page(rest: Rest) -> None:
    for name in ("second", "first", "third"):
        await create(rest, name)
    first = await rest.ok("GET", f"{rest.project}/schemas", params={"pageSize": 2})
    params = {"pageSize": 2, "pageToken": first["nextPageToken"]}
    second = await rest.ok("GET", f"{rest.project}/schemas", params=params)
    names = [schema["name"].rpartition("/")[2] for schema in (*first["schemas"], *second["schemas"])]
    assert (names, "nextPageToken" in second) == (["first", "second", "third"], False)


async def test_a_commit_makes_a_revision_and_a_rollback_a_copy_of_an_older_one(rest: Rest) -> None:
    first = await create(rest)
    second = await _commit(rest, record(id="string", note=["null", "string"]))
    assert second["name"] == _name(rest)
    assert second["revisionId"] != first["revisionId"]
    assert await rest.ok("GET", _name(rest)) == second
    assert await rest.ok("GET", f"{_name(rest)}@{first['revisionId']}") == first
    rolled = await rest.ok("POST", f"{_name(rest)}:rollback", {"revisionId": first["revisionId"]})
    assert rolled["definition"] == first["definition"]
    ids = [rolled["revisionId"], second["revisionId"], first["revisionId"]]
    assert await _revisions(rest) == ids
    page = await rest.ok("GET", f"{_name(rest)}:listRevisions", params={"pageSize": 2, "view": "FULL"})
    assert page["schemas"] == [rolled, second]
    assert await _revisions(rest, pageSize=2, pageToken=page["nextPageToken"]) == ids[2:]


async def test_a_revision_is_deleted_by_its_name_and_the_only_one_is_not(rest: Rest) -> None:
    first = await create(rest)
    second = await _commit(rest, record(id="string", note=["null", "string"]))
    assert await rest.ok("DELETE", f"{_name(rest)}@{second['revisionId']}:deleteRevision") == second
    assert await rest.ok("GET", _name(rest)) == first
    only = await rest.error("DELETE", f"{_name(rest)}@{first['revisionId']}:deleteRevision")
    assert only == ("INVALID_ARGUMENT", "Cannot delete last revision. Please use DeleteSchema.")
    gone = await rest.error("DELETE", f"{_name(rest)}@{second['revisionId']}:deleteRevision")
    assert gone == ("NOT_FOUND", f"Schema revision not found (resource=orders@{second['revisionId']}).")
    code, text = await rest.error("DELETE", f"{_name(rest)}:deleteRevision")
    assert (code, "A revision must be named" in text) == ("INVALID_ARGUMENT", True)


async def test_a_schema_has_no_more_revisions_than_google_allows(rest: Rest) -> None:
    first = await create(rest)
    body = {"revisionId": first["revisionId"]}
    for _ in range(MAX_REVISIONS - 1):
        await rest.ok("POST", f"{_name(rest)}:rollback", body)
    code, text = await rest.error("POST", f"{_name(rest)}:rollback", body)
    assert (code, "has 20 revisions already" in text) == ("FAILED_PRECONDITION", True)
    assert len(await _revisions(rest)) == MAX_REVISIONS


async def test_what_is_missing_is_said_to_be(rest: Rest) -> None:
    missing = ("NOT_FOUND", "Schema not found (resource=orders).")
    assert await rest.error("GET", _name(rest)) == missing
    assert await rest.error("DELETE", _name(rest)) == missing
    assert await rest.error("GET", f"{_name(rest)}:listRevisions") == missing
    assert await rest.error("POST", f"{_name(rest)}:commit", {"schema": avro()}) == missing
    assert await rest.error("POST", f"{_name(rest)}:rollback", {"revisionId": "00000000"}) == missing
    await create(rest)
    revision = ("NOT_FOUND", "Schema revision not found (resource=orders@00000000).")
    assert await rest.error("GET", f"{_name(rest)}@00000000") == revision
    assert await rest.error("POST", f"{_name(rest)}:rollback", {"revisionId": "00000000"}) == revision
    assert (await rest.error("POST", f"{rest.project}/schemas", avro(), params={"schemaId": "orders"}))[
        0
    ] == "ALREADY_EXISTS"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "Invalid schema type (schema.type=TYPE_UNSPECIFIED)"),
        ({"definition": record()}, "Invalid schema type (schema.type=TYPE_UNSPECIFIED)"),
        ({"type": "AVRO"}, "The field schema.definition is empty"),
        (avro("{"), "Could not parse schema definition"),
        (avro("3"), "Could not parse schema definition"),
        (avro('{"type": "record"}'), "Could not parse schema definition"),
        (avro('"no-such-type"'), "Could not parse schema definition"),
        (avro("[" * 100_000), "Could not parse schema definition"),
        (avro("[" * 300 + '"null"' + "]" * 300), "is nested more than 200 levels deep"),
        (avro(record(id="string") + " " * MAX_DEFINITION_BYTES), "is too long"),
        (avro(record("Node", next="Node")), "contains itself without an end: Node"),
        (avro(json.dumps({"type": "array", "items": "null"})), "items take no bytes"),
        (avro('{"type": "error", "name": "E", "fields": []}'), "has an error, which only protocols of Avro have"),
        (proto("message Order {"), "schema.proto:1:16: Reached end of input"),
        (
            proto('import "google/protobuf/any.proto"; message A {}'),
            'Import "google/protobuf/any.proto" was not found',
        ),
        (proto('syntax = "proto3"; import "/etc/passwd"; message A {}'), 'Import "/etc/passwd" was not found'),
        (proto('syntax = "proto3"; message A {} message B {}'), "has 2 messages at the top"),
        (proto('syntax = "proto3"; message A {} service S {}'), "has services"),
        (proto('syntax = "proto3"; option (mine) = 1; message A {}'), 'Option "(mine)" unknown'),
        (proto('syntax = "proto3";' + "message A {" * 5_000 + "}" * 5_000), "maximum recursion limit"),
        (
            proto('syntax = "proto3"; message A {' + "".join(f"message M{n}{{}}" for n in range(6_000)) + "}"),
            "5000",
        ),
        (avro() | {"compiledProtoSchema": {"compiledBytes": "AAAA"}}, "is for schemas of type PROTOCOL_BUFFER"),
        (
            {"type": "PROTOCOL_BUFFER", "compiledProtoSchema": {"compiledBytes": "AAAA"}},
            "schema.compiledProtoSchema.rootMessage is empty",
        ),
        (
            {"type": "PROTOCOL_BUFFER", "compiledProtoSchema": {"compiledBytes": "AAAA", "rootMessage": "A"}},
            "is no FileDescriptorSet",
        ),
    ],
)
async def test_a_schema_that_cannot_be_is_refused_wherever_it_is_given(rest: Rest, body: Json, said: str) -> None:
    await create(rest)
    calls: list[tuple[str, Json, Json]] = [
        (f"{rest.project}/schemas", body, {"schemaId": "other"}),
        (f"{_name(rest)}:commit", {"schema": body}, {}),
        (f"{rest.project}/schemas:validate", {"schema": body}, {}),
    ]
    for path, given, params in calls:
        code, text = await rest.error("POST", path, given, **({"params": params} if params else {}))
        assert (code, said in text) == ("INVALID_ARGUMENT", True), text
    assert len(await _revisions(rest)) == 1
    assert len((await rest.ok("GET", f"{rest.project}/schemas"))["schemas"]) == 1


async def test_names_that_no_schema_can_have_are_refused(rest: Rest) -> None:
    bad = await rest.error("POST", f"{rest.project}/schemas", avro(), params={"schemaId": "a"})
    assert bad[0] == "INVALID_ARGUMENT"
    for path in (f"{_name(rest)}@1234abcd:commit", f"{_name(rest)}@1234abcd:rollback"):
        body = {"schema": avro()} if "commit" in path else {"revisionId": "1234abcd"}
        code, text = await rest.error("POST", path, body)
        assert (code, "This call names no revision" in text) == ("INVALID_ARGUMENT", True)
    assert (await rest.error("DELETE", f"{_name(rest)}@1234abcd"))[0] == "INVALID_ARGUMENT"


def _message(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    ("encoding", "data", "said"),
    [
        ("BINARY", b"\x02x\x02", ""),
        ("BINARY", b"", "at byte 0 it ends too early"),
        ("BINARY", b"\x02x\x02z", "at byte 3 the value ends, and 1 more bytes follow"),
        ("BINARY", b"\x02\xff\x02", "at byte 1 a string is not UTF-8"),
        ("JSON", b'{"id": "x", "n": 1}', ""),
        ("JSON", b'{"id": "x", "n": "many"}', "Order.n must be int, not a string"),
        ("JSON", b'{"id": "x"}', "Order.n is missing"),
        ("JSON", b'{"id": "x", "n": 1', "line 1 column 19: it is not JSON"),
        ("JSON", b"\xff\xfe", "at byte 0 it is not UTF-8, and so not JSON"),
        ("JSON", b"[" * 100_000, "it is nested too deep"),
    ],
)
async def test_a_message_is_validated_against_a_schema_and_the_place_is_named(
    rest: Rest, encoding: str, data: bytes, said: str
) -> None:
    definition = record(id="string", n="int")
    created = await create(rest, definition=definition)
    revision = f"{_name(rest)}@{created['revisionId']}"
    for target in ({"name": _name(rest)}, {"name": revision}, {"schema": avro(definition)}):
        body = {**target, "message": _message(data), "encoding": encoding}
        path = f"{rest.project}/schemas:validateMessage"
        if not said:
            assert await rest.ok("POST", path, body) == {}
        else:
            code, text = await rest.error("POST", path, body)
            assert code == "INVALID_ARGUMENT"
            assert text == f"Invalid data in message: Message failed schema validation ({said})."


async def test_what_a_message_is_validated_against_must_be_said(rest: Rest) -> None:
    path = f"{rest.project}/schemas:validateMessage"
    code, text = await rest.error("POST", path, {"message": "", "encoding": "JSON"})
    assert (code, text.startswith("Neither name nor schema is given")) == ("INVALID_ARGUMENT", True)
    code, text = await rest.error("POST", path, {"schema": avro(), "message": ""})
    assert (code, text.startswith("Invalid schema encoding provided")) == ("INVALID_ARGUMENT", True)
    missing = {"name": _name(rest), "message": "", "encoding": "JSON"}
    assert (await rest.error("POST", path, missing))[0] == "NOT_FOUND"


@pytest.mark.parametrize("encoding", ["BINARY", "JSON"])
async def test_a_message_that_is_nested_without_an_end_is_refused_and_ends_nothing(
    rest: Rest, encoding: str
) -> None:
    definition = record("Node", next=["null", "Node"])
    deep = b"\x02" * 100_000 if encoding == "BINARY" else b'{"next":{"Node":' * 100_000
    body = {"schema": avro(definition), "message": _message(deep), "encoding": encoding}
    code, text = await rest.error("POST", f"{rest.project}/schemas:validateMessage", body)
    assert (code, "Message failed schema validation" in text) == ("INVALID_ARGUMENT", True)


ORDER = 'syntax = "proto3"; package shop; message Order { string id = 1; repeated Order parts = 2; int32 n = 3; }'


@pytest.mark.parametrize(
    ("encoding", "data", "said"),
    [
        ("BINARY", b"\n\x01x", ""),
        ("BINARY", b"", ""),
        ("BINARY", b"\n\x05x", "it is not protobuf, or a field is not of its type"),
        ("BINARY", b"\x20\x01", "it has a field that the schema has not, or that is of another type there"),
        ("BINARY", b"\x12\x02\x20\x01", "it has a field that the schema has not, or that is of another type there"),
        ("BINARY", b"\x12\x80\x80\x04" * 100_000, "it is not protobuf, or a field is not of its type"),
        ("JSON", b'{"id": "x", "parts": [{"n": 3}]}', ""),
        ("JSON", b'{"id": "x", "parts": [{"m": 3}]}', 'has no field named "m"'),
        ("JSON", b'{"n": "many"}', "Order.n must be an integer, and the string is none"),
        ("JSON", b'{"n": 3', "line 1 column 8: it is not JSON"),
        ("JSON", b'{"parts":[' * 5_000, "it is not JSON"),
    ],
)
async def test_a_message_is_validated_against_protobuf(rest: Rest, encoding: str, data: bytes, said: str) -> None:
    created = await rest.ok("POST", f"{rest.project}/schemas", proto(ORDER), params={"schemaId": "orders"})
    assert (created["type"], created["definition"]) == ("PROTOCOL_BUFFER", ORDER)
    for target in ({"name": _name(rest)}, {"schema": proto(ORDER)}):
        body = {**target, "message": _message(data), "encoding": encoding}
        path = f"{rest.project}/schemas:validateMessage"
        if not said:
            assert await rest.ok("POST", path, body) == {}
        else:
            code, text = await rest.error("POST", path, body)
            assert (code, said in text) == ("INVALID_ARGUMENT", True), text


async def test_a_message_of_proto2_needs_its_required_fields(rest: Rest) -> None:
    schema = proto('syntax = "proto2"; message Order { required string id = 1; }')
    for data, encoding in ((b"", "BINARY"), (b"{}", "JSON")):
        body = {"schema": schema, "message": _message(data), "encoding": encoding}
        code, text = await rest.error("POST", f"{rest.project}/schemas:validateMessage", body)
        assert (code, "required fields are missing: id" in text) == ("INVALID_ARGUMENT", True)


async def test_protobuf_may_be_given_compiled(rest: Rest) -> None:
    note = FileDescriptorProto(name="note.proto", package="shop", syntax="proto3")
    note.message_type.add(name="Note").field.add(name="text", number=1, type=9, label=1, json_name="text")
    order = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3", dependency=["note.proto"])
    field = order.message_type.add(name="Order").field.add(
        name="note", number=1, type=11, label=1, json_name="note"
    )
    field.type_name = ".shop.Note"
    compiled = _message(FileDescriptorSet(file=[note, order]).SerializeToString())
    schema = {
        "type": "PROTOCOL_BUFFER",
        "compiledProtoSchema": {"compiledBytes": compiled, "rootMessage": "shop.Order"},
    }
    await rest.ok("POST", f"{rest.project}/schemas", schema, params={"schemaId": "orders"})
    shown = await rest.ok("GET", _name(rest))
    assert shown["compiledProtoSchema"] == schema["compiledProtoSchema"]
    assert "definition" not in shown
    body = {"name": _name(rest), "message": _message(b'{"note": {"text": "x"}}'), "encoding": "JSON"}
    assert await rest.ok("POST", f"{rest.project}/schemas:validateMessage", body) == {}
    wrong = {**schema, "compiledProtoSchema": {"compiledBytes": compiled, "rootMessage": "shop.None"}}
    assert (await rest.error("POST", f"{rest.project}/schemas:validate", {"schema": wrong}))[
        0
    ] == "INVALID_ARGUMENT"


INCOMPATIBLE = [
    (
        record(id="string"),
        record(id="int"),
        "reader type: int not compatible with writer type: string (at /fields/0/type)",
    ),
    (record(id="string"), record(id="string", n="int"), "reader_field_missing_default_value: n"),
    (record(id="string", n="int"), record(id="string"), "reader_field_missing_default_value: n"),
]


@pytest.mark.parametrize(("first", "second", "said"), INCOMPATIBLE)
async def test_a_commit_must_be_compatible_with_all_revisions_both_ways(
    rest: Rest, first: str, second: str, said: str
) -> None:
    created = await create(rest, definition=first)
    await _commit(rest, first)
    newest = (await _revisions(rest))[0]
    code, text = await rest.error("POST", f"{_name(rest)}:commit", {"schema": avro(second)})
    assert code == "INVALID_ARGUMENT"
    assert text.startswith(f"Revision is incompatible with previous revision: {newest}. ")
    assert said in text, text
    assert await _revisions(rest) == [newest, created["revisionId"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("string device = 1; optional int32 more = 9;", ""),
        ("", ""),
        ("int64 device_id = 1;", "device_id of type int64 is not compatible with device of type string"),
        ("string other = 1;", "other of type string is not compatible with device of type string"),
        ("repeated string device = 1;", "device of type repeated string is not compatible"),
        ("string device = 1; repeated string more = 9;", "more of type repeated string is added"),
        ("string device = 1; Part part = 2; message Part { int32 n = 1; }", "n of type int32 is not compatible"),
    ],
)
async def test_protobuf_may_have_optional_fields_added_and_removed(rest: Rest, fields: str, said: str) -> None:
    first = proto('syntax="proto3"; message M { string device = 1; Part part = 2; message Part { string n = 1; } }')
    await rest.ok("POST", f"{rest.project}/schemas", first, params={"schemaId": "orders"})
    second = {"schema": proto(f'syntax="proto3"; message M {{ {fields} }}')}
    if not said:
        await rest.ok("POST", f"{_name(rest)}:commit", second)
    else:
        code, text = await rest.error("POST", f"{_name(rest)}:commit", second)
        assert (code, said in text) == ("INVALID_ARGUMENT", True), text


async def test_all_revisions_have_one_type(rest: Rest) -> None:
    await create(rest)
    code, text = await rest.error("POST", f"{_name(rest)}:commit", {"schema": proto(ORDER)})
    assert (code, "is of type AVRO" in text) == ("INVALID_ARGUMENT", True)


async def test_a_large_message_is_read_in_a_process_of_its_own(rest: Rest) -> None:
    """One that is nested a few thousand levels can be read there, one that is nested deeper cannot."""
    schema = avro(record("Node", next=["null", "Node"]))
    path = f"{rest.project}/schemas:validateMessage"
    many = {"schema": avro(json.dumps({"type": "array", "items": "int"})), "encoding": "BINARY"}
    assert (
        await rest.ok("POST", path, {**many, "message": _message(b"\x80\xc8\x01" + b"\x02" * 12_800 + b"\0")}) == {}
    )
    assert (
        await rest.ok(
            "POST", path, {"schema": schema, "message": _message(b"\x02" * 1_500 + b"\0"), "encoding": "BINARY"}
        )
        == {}
    )
    code, text = await rest.error(
        "POST", path, {"schema": schema, "message": _message(b"\x02" * 900_000), "encoding": "BINARY"}
    )
    assert (code, "it is nested too deep" in text) == ("INVALID_ARGUMENT", True)
    assert (
        await rest.ok(
            "POST", path, {"schema": schema, "message": _message(b"\x02" * 1_500 + b"\0"), "encoding": "BINARY"}
        )
        == {}
    )


async def test_a_message_is_decoded_by_the_schema_of_its_topic(rest: Rest) -> None:
    schema = f"{rest.project}/schemas/sale"
    definition = '{"type": "record", "name": "Sale", "fields": [{"name": "total", "type": "int"}]}'
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=sale", {"type": "AVRO", "definition": definition})
    settings = {"schemaSettings": {"schema": schema, "encoding": "BINARY"}}
    await rest.ok("PUT", rest.topic(), {"messageRetentionDuration": "600s", **settings})
    [message_id] = await rest.publish({"data": base64.b64encode(b"\x54").decode()})
    path = f"{rest.topic()}/messages/{message_id}:decode"
    decoded = await rest.ok("GET", path)
    assert decoded["decoded"] == {"total": 42}
    assert decoded["schema"].startswith(f"{schema}@")
    assert (await rest.error("GET", f"{path}?revision=xyz"))[0] == "INVALID_ARGUMENT"
    await rest.create_topic("plain", messageRetentionDuration="600s")
    [plain] = await rest.publish("a", topic="plain")
    code, said = await rest.error("GET", f"{rest.topic('plain')}/messages/{plain}:decode")
    assert (code, "no schema" in said) == ("FAILED_PRECONDITION", True)
