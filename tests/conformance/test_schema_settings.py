"""Topics with a schema (A11): what is published is as it says, and receivers are told which revision it is like."""

import json
from typing import Any

import pytest

from tests.conformance.test_schemas import avro, create, proto, record
from tests.fixtures.broker import Json, Rest, message, text

OLD, NEW = "\x02a", "\x02b\x02\x02x"  # in BINARY, of the first and the second
FIRST, SECOND = record(id="string"), record(id="string", note=["null", "string"])


async def _topic(rest: Rest, encoding: str = "JSON", **settings: str) -> str:
    """A topic with a schema and a subscription; the id of its revision."""
    revision: str = (await create(rest, definition=FIRST))["revisionId"]
    await rest.create_topic(schemaSettings={"schema": _schema(rest), "encoding": encoding, **settings})
    await rest.create_subscription()
    return revision


def _schema(rest: Rest) -> str:
    return f"{rest.project}/schemas/orders"


async def _commit(rest: Rest, definition: str) -> str:
    committed = await rest.ok("POST", f"{_schema(rest)}:commit", {"schema": avro(definition)})
    revision: str = committed["revisionId"]
    return revision


async def _change(rest: Rest, mask: str, **settings: Any) -> Json:
    topic = {"schemaSettings": settings} if settings else {}
    return await rest.ok("PATCH", rest.topic(), {"topic": {"name": rest.topic(), **topic}, "updateMask": mask})


def _reported(received: Json) -> tuple[str, ...]:
    attributes = received["message"]["attributes"]
    return tuple(attributes[f"googclient_schema{name}"] for name in ("name", "encoding", "revisionid"))


async def _refused(rest: Rest, *data: str) -> str:
    body = {"messages": [message(each) for each in data]}
    code, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert code == "INVALID_ARGUMENT"
    assert said.startswith("Invalid data in message: Message failed schema validation")
    return said


async def test_a_message_that_is_like_the_schema_is_delivered_with_what_it_is_like(rest: Rest) -> None:
    revision = await _topic(rest)
    await rest.publish('{"id": "a"}', message('{"id": "b"}', {"own": "yes"}))
    received = await rest.pull()
    assert [text(each) for each in received] == ['{"id": "a"}', '{"id": "b"}']
    assert {_reported(each) for each in received} == {(_schema(rest), "JSON", revision)}
    assert received[1]["message"]["attributes"]["own"] == "yes"
    assert len(received[0]["message"]["attributes"]) == 3


async def test_one_message_that_is_not_like_it_has_the_whole_request_refused(rest: Rest) -> None:
    revision = await _topic(rest)
    said = await _refused(rest, '{"id": "a"}', '{"id": 7}')
    assert (
        f"messages[1].data is not {_schema(rest)}@{revision} in JSON (Order.id must be string, not a number)"
        in said
    )
    assert await rest.pull() == []


_MAIL = record(id="string", mail="string")
_BRANCHES = json.dumps(["null", "int"])
_TIMES = record("At", at={"type": "long", "logicalType": "timestamp-micros"})
_ORDER = 'syntax = "proto3"; message Order { int32 n = 1; Order part = 2; }'


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (avro(_MAIL), '{"id": "a", "mail": "b"}', ['"hello"', "[]", '{"id": "a"}']),
        (avro(record(n="int")), '{"n": 5}', ["5", '{"n": "5"}', '{"n": 2147483648}']),
        (avro(_BRANCHES), '{"int": 1}', ['{"int": "x"}', "1"]),
        (avro(_TIMES), '{"at": 9223372036854775807}', ['{"at": 9223372036854775808}', '{"at": "2026-01-01"}']),
        (avro(record(d={"type": "bytes", "logicalType": "decimal"})), '{"d": "a"}', ['{"d": 1.5}']),
        (avro(record(u={"type": "string", "logicalType": "uuid"})), '{"u": "not-a-uuid"}', ['{"u": 1}']),
        (proto(_ORDER), '{"part": {"n": 1}}', ["[]", '""', '{"n": []}', '{"part": []}', '{"part": ""}']),
    ],
)
async def test_a_publish_is_accepted_exactly_if_the_standard_of_the_schema_allows_it(
    rest: Rest, schema: Json, right: str, wrong: list[str]
) -> None:
    await rest.ok("POST", f"{rest.project}/schemas", schema, params={"schemaId": "orders"})
    await rest.create_topic(schemaSettings={"schema": _schema(rest), "encoding": "JSON"})
    await rest.create_subscription()
    for each in wrong:
        await _refused(rest, each)
    await rest.publish(right)
    assert [text(each) for each in await rest.pull()] == [right]


@pytest.mark.parametrize("definition", ['["null", ["int"]]', record("a-b"), record("Order", id={"type": ["int"]})])
async def test_a_definition_that_avro_forbids_makes_no_schema(rest: Rest, definition: str) -> None:
    code, said = await rest.error(
        "POST", f"{rest.project}/schemas", avro(definition), params={"schemaId": "orders"}
    )
    assert (code, "schema.type=AVRO, schema.definition" in said) == ("INVALID_ARGUMENT", True)


async def test_binary_messages_are_checked_to_their_last_byte(rest: Rest) -> None:
    revision = await _topic(rest, "BINARY")
    await rest.publish("\x02a")
    assert "messages[0].data" in await _refused(rest, "\x02ab")
    assert "at byte 2 the value ends, and 1 more bytes follow" in await _refused(rest, "\x02ab")
    [received] = await rest.pull()
    assert _reported(received) == (_schema(rest), "BINARY", revision)


async def test_attributes_alone_are_no_message_of_a_schema(rest: Rest) -> None:
    await _topic(rest)
    body = {"messages": [message("", {"only": "attributes"})]}
    code, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert (code, "messages[0].data" in said) == ("INVALID_ARGUMENT", True)


async def test_each_message_is_told_the_newest_revision_that_it_is_like(rest: Rest) -> None:
    first = await _topic(rest, "BINARY")
    second = await _commit(rest, SECOND)
    await rest.publish(OLD, OLD, NEW, OLD)
    await rest.publish(NEW)
    assert [_reported(each)[2] for each in await rest.pull()] == [first, first, second, first, second]


async def test_a_topic_takes_revisions_from_the_first_to_the_last_of_its_settings(rest: Rest) -> None:
    first = await _topic(rest, "BINARY")
    second = await _commit(rest, SECOND)
    await _change(rest, "schemaSettings.firstRevisionId", firstRevisionId=second)
    assert f"@{second} in BINARY (at byte 2 it ends too early)" in await _refused(rest, OLD)
    both = await _change(rest, "schemaSettings", schema=_schema(rest), encoding="BINARY", lastRevisionId=first)
    assert both["schemaSettings"] == {"schema": _schema(rest), "encoding": "BINARY", "lastRevisionId": first}
    assert f"@{first} in BINARY (at byte 2 the value ends" in await _refused(rest, NEW)
    await rest.publish(OLD)
    [received] = await rest.pull()
    assert _reported(received)[2] == first
    code, said = await rest.error("DELETE", f"{_schema(rest)}@{first}:deleteRevision")
    assert (code, rest.topic() in said) == ("FAILED_PRECONDITION", True)


async def test_settings_are_read_changed_and_cleared(rest: Rest) -> None:
    await _topic(rest)
    settings = {"schema": _schema(rest), "encoding": "JSON"}
    assert (await rest.ok("GET", rest.topic()))["schemaSettings"] == settings
    await _refused(rest, "no JSON")
    assert "schemaSettings" not in await _change(rest, "schemaSettings")
    await rest.publish("no JSON")
    changed = await _change(rest, "schemaSettings", **settings)
    assert changed["schemaSettings"] == settings
    await _refused(rest, "no JSON")
    [received] = await rest.pull()
    assert "attributes" not in received["message"]


async def test_a_topic_whose_schema_is_deleted_takes_nothing_until_it_has_another(rest: Rest) -> None:
    await _topic(rest)
    await rest.ok("DELETE", _schema(rest))
    shown = await rest.ok("GET", rest.topic())
    assert shown["schemaSettings"] == {"schema": "_deleted-schema_", "encoding": "JSON"}
    await create(rest, definition=FIRST)
    body = {"messages": [message('{"id": "a"}')]}
    code, said = await rest.error("POST", f"{rest.topic()}:publish", body)
    assert (code, "Schema associated with topic deleted" in said) == ("NOT_FOUND", True)
    await _change(rest, "schemaSettings", schema=_schema(rest), encoding="JSON")
    await rest.publish('{"id": "a"}')


@pytest.mark.parametrize(
    ("settings", "code", "said"),
    [
        ({"schema": "orders", "encoding": "JSON"}, "INVALID_ARGUMENT", "Invalid [schemas] name"),
        ({"encoding": "JSON"}, "INVALID_ARGUMENT", "schemaSettings.schema is empty"),
        ({"schema": "{}"}, "INVALID_ARGUMENT", "Invalid schema encoding provided"),
        ({"schema": "{}x", "encoding": "JSON"}, "NOT_FOUND", "Schema could not be found"),
        ({"schema": "{}", "encoding": "JSON", "firstRevisionId": "00000000"}, "NOT_FOUND", "revision not found"),
        ({"schema": "{}", "encoding": "JSON", "lastRevisionId": "nothing"}, "NOT_FOUND", "revision not found"),
    ],
)
async def test_settings_that_cannot_be_are_refused_by_name(
    rest: Rest, settings: dict[str, str], code: str, said: str
) -> None:
    await create(rest, definition=FIRST)
    given = {name: value.replace("{}", _schema(rest)) for name, value in settings.items()}
    refused = await rest.error("PUT", rest.topic(), {"schemaSettings": given})
    assert (refused[0], said in refused[1]) == (code, True), refused
    await rest.create_topic()
    body = {"topic": {"name": rest.topic(), "schemaSettings": given}, "updateMask": "schemaSettings"}
    refused = await rest.error("PATCH", rest.topic(), body)
    assert (refused[0], said in refused[1]) == (code, True), refused
    assert "schemaSettings" not in await rest.ok("GET", rest.topic())


async def test_the_first_revision_is_not_newer_than_the_last(rest: Rest) -> None:
    first = await _topic(rest)
    second = await _commit(rest, SECOND)
    given = {"schema": _schema(rest), "encoding": "JSON", "firstRevisionId": second, "lastRevisionId": first}
    code, said = await rest.error("PUT", rest.topic("other"), {"schemaSettings": given})
    assert (code, "is newer than" in said) == ("INVALID_ARGUMENT", True)


async def test_a_filter_sees_which_schema_a_message_is_like(rest: Rest) -> None:
    first = await _topic(rest, "BINARY")
    second = await _commit(rest, SECOND)
    for name, revision in (("old", first), ("new", second)):
        chosen = f'attributes.googclient_schemarevisionid = "{revision}" AND attributes.own = "yes"'
        await rest.create_subscription(name, filter=chosen)
    await rest.publish(message(OLD, {"own": "yes"}), message(NEW, {"own": "yes"}), OLD, NEW)
    assert [text(each) for each in await rest.pull("old")] == [OLD]
    [received] = await rest.pull("new")
    assert (text(received), _reported(received)[2]) == (NEW, second)


async def test_a_hundred_messages_and_one_of_another_size_are_told_alike(rest: Rest) -> None:
    revision = await _topic(rest)
    bodies = [json.dumps({"id": "x" * size}) for size in (*range(100), 10_000)]
    await rest.publish(*bodies)
    received = [*await rest.pull(), *await rest.pull()]
    assert [text(each) for each in received] == bodies
    assert {_reported(each)[2] for each in received} == {revision}
