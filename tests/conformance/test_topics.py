"""Topics over REST: PUT, GET, PATCH, DELETE and the lists, as Google's service does them (A12)."""

import asyncio
from urllib.parse import quote

import pytest

from tests.fixtures.broker import Json, Rest, text

IMMUTABLE_TEXT = "is not mutable"
ALL_TOPIC_FIELDS: list[Json] = [
    {"kmsKeyName": "projects/p/locations/l/keyRings/r/cryptoKeys/k"},
    {"messageStoragePolicy": {"allowedPersistenceRegions": ["europe-west1"]}},
    {"messageRetentionDuration": "3600s"},
    {"schemaSettings": {"schema": "projects/p/schemas/missing", "encoding": "JSON"}},
    {"ingestionDataSourceSettings": {"awsKinesis": {"streamArn": "a", "consumerArn": "b", "awsRoleArn": "c"}}},
    {"messageTransforms": [{"javascriptUdf": {"functionName": "f", "code": "function f(m) { return m; }"}}]},
    {"labels": {"team": "payments"}},
    {"tags": {"123/environment": "production"}},
]


async def test_a_created_topic_has_its_name_and_nothing_else(rest: Rest) -> None:
    """A12: fields that were not given are left out."""
    created = await rest.create_topic()
    assert created == {"name": rest.topic()}
    assert await rest.ok("GET", rest.topic()) == created


async def test_creating_a_topic_twice_is_a_conflict(rest: Rest) -> None:
    """A12: even when nothing differs."""
    await rest.create_topic()
    status, message = await rest.error("PUT", rest.topic(), {})
    assert status == "ALREADY_EXISTS"
    assert message.endswith("(resource=topic).")


async def test_a_missing_topic_is_not_found_by_its_id(rest: Rest) -> None:
    """A12: the message has the id, not the whole name."""
    for method in ("GET", "DELETE"):
        status, message = await rest.error(method, rest.topic("missing"))
        assert status == "NOT_FOUND"
        assert message.endswith("not found (resource=missing).")


@pytest.mark.parametrize("name", ["abc", "a" * 255, "Az0-_.~+", "off50%", "a%25b", "a%2Fb"])
async def test_every_legal_topic_id_can_be_used(rest: Rest, name: str) -> None:
    """A12: a percent sign is legal in an id, so the path is decoded once."""
    path = f"{rest.project}/topics/{quote(name, safe='')}"
    assert await rest.ok("PUT", path, {}) == {"name": rest.topic(name)}
    assert await rest.ok("GET", path) == {"name": rest.topic(name)}


@pytest.mark.parametrize(
    "name", ["ab", "1abc", "-abc", "a" * 256, "googtopic", "GOOGtopic", "a b c", "töpic", "a*bc"]
)
async def test_an_illegal_topic_id_is_refused(rest: Rest, name: str) -> None:
    """A12: 3 to 255 characters, a letter first, not goog in any case."""
    status, message = await rest.error("PUT", f"{rest.project}/topics/{quote(name, safe='')}", {})
    assert status == "INVALID_ARGUMENT"
    assert name in message


@pytest.mark.parametrize("owner", ["123456789", "example.com:shop", "x"])
async def test_a_project_is_an_id_a_number_or_domain_scoped(rest: Rest, owner: str) -> None:
    """A12: projects need not exist."""
    path = f"projects/{owner}/topics/in-{rest.project.removeprefix('projects/')}"
    assert await rest.ok("PUT", path, {}) == {"name": path}
    assert await rest.ok("DELETE", path) == {}


@pytest.mark.parametrize("field", ALL_TOPIC_FIELDS, ids=lambda field: next(iter(field)))
async def test_a_topic_field_is_given_back_or_refused_by_name_but_never_dropped(rest: Rest, field: Json) -> None:
    """A12: a field dropped silently shows as an endless difference in Terraform."""
    response = await rest.call("PUT", rest.topic(), field)
    (name,) = field
    if response.status_code == 200:
        assert response.json().get(name) == field[name] or name == "tags", "tags are input only"
    else:
        error = response.json()["error"]
        assert name in error["message"]
        assert error["status"] in {"INVALID_ARGUMENT", "NOT_FOUND"}


@pytest.mark.parametrize("field", [{"state": "INGESTION_RESOURCE_ERROR"}, {"satisfiesPzs": True}])
async def test_an_output_only_field_of_a_topic_is_not_stored(rest: Rest, field: Json) -> None:
    """A12; Google's emulator stores it."""
    response = await rest.call("PUT", rest.topic(), field)
    assert response.status_code == 400 or response.json() == {"name": rest.topic()}


@pytest.mark.parametrize(("duration", "accepted"), [("600s", 1), ("2678400s", 1), ("599s", 0), ("2678401s", 0)])
async def test_topic_retention_is_ten_minutes_to_31_days(rest: Rest, duration: str, accepted: int) -> None:
    """A10: both bounds are inclusive."""
    response = await rest.call("PUT", rest.topic(), {"messageRetentionDuration": duration})
    assert response.status_code == (200 if accepted else 400)
    if accepted:
        assert response.json()["messageRetentionDuration"] == duration


@pytest.mark.parametrize(
    ("labels", "accepted"),
    [
        ({f"k{n}": "" for n in range(64)}, True),
        ({f"k{n}": "" for n in range(65)}, False),
        ({"a" * 63: "v" * 63}, True),
        ({"a" * 64: "v"}, False),
        ({"a": "v" * 64}, False),
        ({"Upper": "v"}, False),
        ({"1a": "v"}, False),
        ({"": "v"}, False),
        ({"a": "has space"}, False),
    ],
    ids=["64", "65", "63 long", "64 long", "value 64 long", "capital", "digit first", "empty key", "space"],
)
async def test_labels_follow_the_label_rules(rest: Rest, labels: dict[str, str], accepted: bool) -> None:
    """A12; Google's emulator takes anything."""
    response = await rest.call("PUT", rest.topic(), {"labels": labels})
    assert response.status_code == (200 if accepted else 400), response.text


async def test_a_name_in_the_body_must_be_the_one_in_the_path(rest: Rest) -> None:
    """A12: Google's emulator never answers when they differ; clients send the equal one."""
    status, _ = await rest.error("PUT", rest.topic(), {"name": rest.topic("other")})
    assert status == "INVALID_ARGUMENT"
    assert await rest.ok("PUT", rest.topic(), {"name": rest.topic()}) == {"name": rest.topic()}
    body = {"topic": {"name": rest.topic("other")}, "updateMask": "labels"}
    assert (await rest.error("PATCH", rest.topic(), body))[0] == "INVALID_ARGUMENT"
    body["topic"]["name"] = rest.topic()  # type: ignore[index]
    assert await rest.ok("PATCH", rest.topic(), body) == {"name": rest.topic()}


async def test_topics_are_listed_in_pages(rest: Rest) -> None:
    """A12: each once, and the last page has no token."""
    assert await rest.ok("GET", f"{rest.project}/topics") == {}
    names = {rest.topic(f"topic-{n}") for n in range(5)}
    for name in names:
        await rest.ok("PUT", name, {})
    listed: list[str] = []
    token: str | None = ""
    while token is not None:
        page = await rest.ok("GET", f"{rest.project}/topics", params={"pageSize": 2, "pageToken": token})
        assert 1 <= len(page["topics"]) <= 2
        listed += [topic["name"] for topic in page["topics"]]
        token = page.get("nextPageToken")
    assert len(listed) == 5
    assert set(listed) == names


async def test_a_page_has_a_hundred_topics_unless_asked(rest: Rest) -> None:
    """A12; our choice, Google states no number."""
    await asyncio.gather(*(rest.create_topic(f"topic-{n}") for n in range(101)))
    page = await rest.ok("GET", f"{rest.project}/topics")
    assert len(page["topics"]) == 100
    rest_of_it = await rest.ok("GET", f"{rest.project}/topics", params={"pageToken": page["nextPageToken"]})
    assert len(rest_of_it["topics"]) == 1
    assert "nextPageToken" not in rest_of_it
    assert len((await rest.ok("GET", f"{rest.project}/topics?pageSize=5000"))["topics"]) == 101


@pytest.mark.parametrize(
    "query",
    [
        "pageSize=abc",
        "pageSize=1.5",
        "pageSize=1_000",
        "pageSize=%D9%A1",  # an Arabic digit
        "pageSize=99999999999",
        f"pageSize={'9' * 5000}",
        "pageToken=%21%21",
    ],
)
async def test_a_bad_page_parameter_is_refused_and_does_not_hang(rest: Rest, query: str) -> None:
    """A12: Google's emulator never answers pageSize=abc."""
    status, _ = await rest.error("GET", f"{rest.project}/topics?{query}")
    assert status == "INVALID_ARGUMENT"


async def test_labels_are_updated_and_replaced_whole(rest: Rest) -> None:
    """A12: Google's emulator refuses a mask with labels."""
    await rest.create_topic(labels={"old": "1", "kept": "1"})
    body = {"topic": {"labels": {"new": "2"}}, "updateMask": "labels"}
    assert await rest.ok("PATCH", rest.topic(), body) == {"name": rest.topic(), "labels": {"new": "2"}}
    assert await rest.ok("GET", rest.topic()) == {"name": rest.topic(), "labels": {"new": "2"}}


async def test_a_field_in_the_mask_but_not_in_the_topic_is_cleared(rest: Rest) -> None:
    """A12; Google's emulator sets the retention to 31 days instead."""
    await rest.create_topic(labels={"a": "b"}, messageRetentionDuration="3600s")
    body = {"topic": {}, "updateMask": "messageRetentionDuration,labels"}
    assert await rest.ok("PATCH", rest.topic(), body) == {"name": rest.topic()}


async def test_a_field_outside_the_mask_is_left_alone(rest: Rest) -> None:
    """A12: also when the body gives it another value."""
    await rest.create_topic(labels={"a": "b"})
    body = {"topic": {"labels": {"x": "y"}, "messageRetentionDuration": "700s"}}
    patched = await rest.ok("PATCH", rest.topic(), body | {"updateMask": "message_retention_duration"})
    assert patched == {"name": rest.topic(), "labels": {"a": "b"}, "messageRetentionDuration": "700s"}


async def test_the_mask_may_be_a_query_parameter(rest: Rest) -> None:
    """A12: Terraform sends it so, with the topic wrapped."""
    await rest.create_topic()
    for parameter in ("updateMask", "update_mask"):
        body = {"topic": {"labels": {"by": parameter.lower()}}}
        patched = await rest.ok("PATCH", f"{rest.topic()}?{parameter}=labels", body)
        assert patched["labels"] == {"by": parameter.lower()}


@pytest.mark.parametrize("mask", [{}, {"updateMask": ""}])
async def test_an_update_without_a_mask_is_refused(rest: Rest, mask: Json) -> None:
    """A12: also with an empty one."""
    await rest.create_topic()
    status, message = await rest.error("PATCH", rest.topic(), {"topic": {"labels": {"a": "b"}}} | mask)
    assert status == "INVALID_ARGUMENT"
    assert "update_mask in the UpdateTopicRequest must be set" in message


async def test_a_bad_path_in_the_mask_refuses_the_whole_update(rest: Rest) -> None:
    """A12: the good path beside it is not applied."""
    await rest.create_topic()
    body: Json = {"topic": {"labels": {"a": "b"}}, "updateMask": "labels,bogus"}
    status, message = await rest.error("PATCH", rest.topic(), body)
    assert status == "INVALID_ARGUMENT"
    assert "Invalid update_mask provided in the UpdateTopicRequest" in message
    assert "is not a known Topic field" in message
    body["updateMask"] = "labels,name"
    assert IMMUTABLE_TEXT in (await rest.error("PATCH", rest.topic(), body))[1]
    assert await rest.ok("GET", rest.topic()) == {"name": rest.topic()}


async def test_a_value_out_of_bounds_refuses_the_whole_update(rest: Rest) -> None:
    """A12: the good value beside it is not applied."""
    await rest.create_topic()
    body = {"topic": {"labels": {"a": "b"}, "messageRetentionDuration": "1s"}}
    status, _ = await rest.error("PATCH", rest.topic(), body | {"updateMask": "labels,messageRetentionDuration"})
    assert status == "INVALID_ARGUMENT"
    assert await rest.ok("GET", rest.topic()) == {"name": rest.topic()}


async def test_updating_a_missing_topic_is_not_found(rest: Rest) -> None:
    """A12: an update does not create."""
    body = {"topic": {"labels": {}}, "updateMask": "labels"}
    status, message = await rest.error("PATCH", rest.topic("missing"), body)
    assert status == "NOT_FOUND"
    assert "missing" in message


async def test_a_deleted_topic_is_gone_and_its_name_free(rest: Rest) -> None:
    """A12: a new topic of the name is a new topic."""
    await rest.create_topic(labels={"a": "b"})
    assert await rest.ok("DELETE", rest.topic()) == {}
    assert (await rest.error("GET", rest.topic()))[0] == "NOT_FOUND"
    assert (await rest.error("DELETE", rest.topic()))[0] == "NOT_FOUND"
    body = {"messages": [{"data": "YQ=="}]}
    assert (await rest.error("POST", f"{rest.topic()}:publish", body))[0] == "NOT_FOUND"
    assert await rest.create_topic() == {"name": rest.topic()}


async def test_a_deleted_topic_leaves_its_subscriptions_with_their_backlog(rest: Rest) -> None:
    """A2, A12: a new topic of the same name is another one, and is nothing to them."""
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("before")
    await rest.ok("DELETE", rest.topic())
    assert (await rest.ok("GET", rest.subscription()))["topic"] == "_deleted-topic_"
    await rest.create_topic()
    await rest.publish("after, to a topic that only shares the name")
    assert (await rest.ok("GET", rest.subscription()))["topic"] == "_deleted-topic_"
    assert await rest.ok("GET", f"{rest.topic()}/subscriptions") == {}
    assert [text(m) for m in await rest.drain()] == ["before"]


async def test_the_subscriptions_of_a_topic_are_listed_by_name(rest: Rest) -> None:
    """A2: those of other projects too; a detached or deleted one is no longer attached."""
    await rest.create_topic()
    assert await rest.ok("GET", f"{rest.topic()}/subscriptions") == {}
    elsewhere = f"{rest.project}-other/subscriptions/sub"
    await rest.ok("PUT", elsewhere, {"topic": rest.topic()})
    for name in ("sub-a", "sub-b", "detached", "deleted"):
        await rest.create_subscription(name)
    await rest.ok("POST", f"{rest.subscription('detached')}:detach")
    await rest.ok("DELETE", rest.subscription("deleted"))
    first = await rest.ok("GET", f"{rest.topic()}/subscriptions?pageSize=2")
    assert len(first["subscriptions"]) == 2
    second = await rest.ok("GET", f"{rest.topic()}/subscriptions?pageSize=2&pageToken={first['nextPageToken']}")
    assert "nextPageToken" not in second
    expected = {elsewhere, rest.subscription("sub-a"), rest.subscription("sub-b")}
    assert set(first["subscriptions"] + second["subscriptions"]) == expected


async def test_the_subscriptions_of_a_missing_topic_are_not_found(rest: Rest) -> None:
    """A12: Google's emulator answers an empty list."""
    assert (await rest.error("GET", f"{rest.topic('missing')}/subscriptions"))[0] == "NOT_FOUND"


async def test_the_texts_for_missing_and_existing_resources_name_the_resource(
    rest: Rest,
) -> None:
    """A12: the emulator's words, which tests match on, and the service's ending (decision 0005)."""
    await rest.create_topic()
    _, existing = await rest.error("PUT", rest.topic(), {})
    _, missing = await rest.error("GET", rest.topic("missing"))
    assert missing == "Topic not found (resource=missing)."
    assert existing == "Topic already exists (resource=topic)."
