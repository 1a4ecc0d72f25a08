"""The specification is valid, is what the broker serves, and says of fields and limits what the code does."""

from typing import Annotated, Any

import msgspec
import pytest
import schemathesis

from broker.api.rest.errors import HTTP_STATUS
from broker.model import delivery, page, publish_limits, resource_limits
from broker.model.errors import InvalidArgument
from broker.model.names import check_name
from broker.net.limits.payload import MAX_PAYLOAD_BYTES
from tests.architecture.surface import (
    described_messages,
    level,
    reason,
    schema,
    specification,
    support,
    wire_messages,
)
from tests.fixtures.broker import Json, Rest

MESSAGES = support()["message"]
PATHS = specification()["components"]["parameters"]


def test_the_specification_is_valid_openapi() -> None:
    schemathesis.openapi.from_dict(dict(specification())).validate()


def test_every_reference_leads_to_something_and_every_component_is_used() -> None:
    references = set(_references(specification()))
    components = {
        f"#/components/{kind}/{name}" for kind, named in specification()["components"].items() for name in named
    }
    assert references == components


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [reference for item in node for reference in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [reference for item in node.values() for reference in _references(item)]


async def test_the_broker_serves_the_specification(rest: Rest) -> None:
    response = await rest.client.get("/openapi.json")
    assert response.json() == specification()


@pytest.mark.parametrize("message", sorted(wire_messages()))
def test_a_schema_has_the_fields_that_the_code_reads_and_prints(message: str) -> None:
    for fields in wire_messages()[message]:
        assert schema(message)["properties"].keys() == set(fields.values())
        assert schema(message)["additionalProperties"] is False


@pytest.mark.parametrize("message", ["Topic", "Subscription", "PushConfig", "CreateSnapshotRequest"])
def test_a_field_is_specified_as_refused_exactly_where_the_support_table_says_so(message: str) -> None:
    (fields,) = wire_messages()[message]
    specified = {
        name
        for name, field in schema(message)["properties"].items()
        if "refused with 400" in field.get("description", "")
    }
    assert specified == {fields[f] for f, entry in MESSAGES[message].items() if level(entry) == "refused"}


def test_the_limits_are_those_of_the_code() -> None:
    attributes = schema("Attributes")
    assert schema("PublishRequest")["properties"]["messages"]["maxItems"] == publish_limits.MAX_MESSAGES
    assert attributes["maxProperties"] == publish_limits.MAX_ATTRIBUTES
    assert attributes["propertyNames"]["maxLength"] == publish_limits.MAX_ATTRIBUTE_KEY_BYTES
    assert attributes["additionalProperties"]["maxLength"] == publish_limits.MAX_ATTRIBUTE_VALUE_BYTES
    assert (
        schema("PubsubMessage")["properties"]["orderingKey"]["maxLength"] == publish_limits.MAX_ORDERING_KEY_BYTES
    )
    assert f"{publish_limits.MAX_REQUEST_BYTES:,} bytes" in schema("PublishRequest")["description"]
    received = schema("PullResponse")["properties"]["receivedMessages"]
    assert received["maxItems"] == delivery.MAX_MESSAGES_PER_ATTEMPT
    assert schema("Labels")["maxProperties"] == resource_limits.MAX_LABELS
    assert schema("ListTopicsResponse")["properties"]["topics"]["maxItems"] == page.MAX_PAGE_SIZE
    assert f"{page.DEFAULT_PAGE_SIZE}, more than {page.MAX_PAGE_SIZE:,}" in PATHS["pageSize"]["description"]
    least, most = resource_limits.MIN_RETENTION, resource_limits.MAX_RETENTION
    retention = f"{least.total_seconds():.0f}s to {most.total_seconds():.0f}s"
    for resource in ("Topic", "Subscription"):
        assert retention in schema(resource)["properties"]["messageRetentionDuration"]["description"]
    assert f"{MAX_PAYLOAD_BYTES:,} bytes" in specification()["info"]["description"]


def test_the_error_codes_are_those_of_the_api() -> None:
    assert set(schema("Error")["properties"]["error"]["properties"]["status"]["enum"]) == HTTP_STATUS.keys()


@pytest.mark.parametrize(
    ("resource_id", "valid"),
    [
        ("abc", True),
        ("A-_.~+%9", True),
        ("x" * 255, True),
        ("x" * 256, False),
        ("ab", False),
        ("9abc", False),
        ("goog-topic", False),
        ("GOOG-topic", False),
        ("goo", True),
        ("a/b/c", False),
        ("abc\n", False),
        ("ärger", False),
    ],
)
def test_the_pattern_of_ids_says_what_the_broker_accepts(resource_id: str, valid: bool) -> None:
    matches = _matches(schema("ResourceId")["pattern"], resource_id)
    assert matches == valid
    if valid:
        check_name(f"projects/p/topics/{resource_id}", "topics")
    else:
        with pytest.raises(InvalidArgument):
            check_name(f"projects/p/topics/{resource_id}", "topics")


@pytest.mark.parametrize(
    ("project", "valid"),
    [("p", True), ("A_b.c:d~e+f%g-9", True), ("p" * 63, True), ("p" * 64, False), ("a b", False), ("ä", False)],
)
def test_the_pattern_of_projects_says_what_the_broker_accepts(project: str, valid: bool) -> None:
    assert _matches(schema("ProjectId")["pattern"], project) == valid
    try:
        check_name(f"projects/{project}/topics/topic", "topics")
    except InvalidArgument:
        assert not valid


def _matches(pattern: str, text: str) -> bool:
    """As JSON Schema matches: `$` is the very end."""
    try:
        msgspec.json.decode(msgspec.json.encode(text), type=_pattern_type(pattern))
    except msgspec.ValidationError:
        return False
    return True


def _pattern_type(pattern: str) -> Any:
    return Annotated[str, msgspec.Meta(pattern=pattern.removesuffix("$") + r"\Z")]


@pytest.mark.parametrize("segment", ["%00", "a%00b", "%ED%A0%80", "%ff"])
async def test_a_path_that_is_no_text_is_refused(rest: Rest, segment: str) -> None:
    """U+0000 cannot be stored; a lone surrogate and a stray byte are not UTF-8."""
    for path in (f"projects/{segment}/topics", f"{rest.project}/topics/{segment}"):
        assert (await rest.error("GET", path))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    "path",
    [
        "/v1%2Fx%0aFAKE%20LOG%20LINE",
        "/v1%2F",
        "/v1%2Fprojects%2Fp%2Ftopics",
        "/v1%2fprojects/p/topics/topic",
        "%2Fv1%2Fprojects/p/topics",
        "/v1/",
        "/v1//",
        "/v1/%2F",
        "/v1/projects%2Fp%2Ftopics%2Ftopic",
        "/v1/projects/p%2Ftopics/topic",
        "/v1/projects/p/topics/topic%3Apublish%3Apublish",
        "/v1/projects/p/topics/topic/",
        "/v1/projects/p/topics/topic%0d%0aX-Injected:%20y/subscriptions%0d",
        "/v1/projects/p/topics/..%2f..%2fhealthz%2fx/y",
        "/v2/projects/p/topics/topic",
    ],
)
async def test_a_path_that_names_no_method_is_not_found_whatever_is_escaped_in_it(rest: Rest, path: str) -> None:
    """An escaped slash separates nothing.  The first path was answered with 500, a traceback and a forged line."""
    for method in ("GET", "POST", "DELETE"):
        response = await rest.client.request(method, path)
        assert response.status_code == 404, response.text
        assert "x-injected" not in response.headers


REFUSED = [
    (message, field, reason(entry))
    for message in ("Topic", "Subscription")
    for field, entry in MESSAGES[message].items()
    if level(entry) == "refused"
]


@pytest.mark.parametrize(("message", "field", "why"), REFUSED, ids=lambda value: value)
async def test_a_refused_field_is_an_invalid_argument_with_the_reason(
    rest: Rest, message: str, field: str, why: str
) -> None:
    (fields,) = wire_messages()[message]
    body = {fields[field]: _value(described_messages()[message].fields_by_name[field])}
    name = rest.topic() if message == "Topic" else rest.subscription()
    wrapped = {message.lower(): body, "updateMask": field}
    for method, sent in (("PUT", body), ("PATCH", wrapped)):
        status, text = await rest.error(method, name, sent)
        assert status == "INVALID_ARGUMENT"
        assert why in text


def _value(field: Any) -> Any:
    """A value of the field's type that is not its default."""
    if field.message_type is None:
        return True if field.type == field.TYPE_BOOL else "x"
    if field.message_type.GetOptions().map_entry:
        return {"a": "b"}
    inner = next(f for f in field.message_type.fields if f.message_type is None)
    value = {inner.json_name: _value(inner)}
    return [value] if field.is_repeated else value


KEPT: list[tuple[str, Json]] = [
    ("Topic", {"messageStoragePolicy": {"allowedPersistenceRegions": ["europe-west1"]}}),
    ("Topic", {"kmsKeyName": "key"}),
    ("Topic", {"ingestionDataSourceSettings": {"awsKinesis": {"streamArn": "arn"}}}),
    ("Subscription", {"bigqueryConfig": {"table": "t"}}),
    ("Subscription", {"cloudStorageConfig": {"bucket": "b"}}),
    ("Subscription", {"bigtableConfig": {"table": "t"}}),
]


def test_all_kept_fields_are_tried() -> None:
    kept = {
        (message, wire_messages()[message][0][field])
        for message in ("Topic", "Subscription")
        for field, entry in MESSAGES[message].items()
        if level(entry) == "kept"
    }
    assert kept == {(message, name) for message, fields in KEPT for name in fields}


@pytest.mark.parametrize(("message", "fields"), KEPT, ids=str)
async def test_a_kept_field_is_given_back(rest: Rest, message: str, fields: Json) -> None:
    await rest.create_topic(**(fields if message == "Topic" else {}))
    name = rest.topic()
    if message == "Subscription":
        await rest.create_subscription(**fields)
        name = rest.subscription()
    assert fields.items() <= (await rest.ok("GET", name)).items()
