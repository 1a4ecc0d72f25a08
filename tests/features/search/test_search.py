"""Searching a project: what is found, in which order, and page by page."""

from typing import Any

import pytest

from broker.features.search.result import MAX_TEXT, ResultKind
from tests.fixtures.broker import Json, Rest

SCHEMA = {"type": "AVRO", "definition": '"string"'}


async def search(rest: Rest, text: str, **query: Any) -> list[Json]:
    """The results of all pages."""
    found: list[Json] = []
    while True:
        answer = await rest.ok("GET", f"{rest.project}:search", params={"q": text, **query})
        found += answer.get("results", [])
        if "nextPageToken" not in answer:
            return found
        query["pageToken"] = answer["nextPageToken"]


def names(rest: Rest, found: list[Json]) -> list[str]:
    return [result["name"].removeprefix(f"{rest.project}/") for result in found]


async def test_a_text_is_found_in_the_names_of_all_kinds_in_the_order_of_kinds(rest: Rest) -> None:
    await rest.create_topic("the-Parcels")
    await rest.create_subscription("parcels-billing", topic="the-Parcels")
    subscription = rest.subscription("parcels-billing")
    await rest.ok("PUT", f"{rest.project}/snapshots/parcels-1", {"subscription": subscription})
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=parcels", SCHEMA)
    schedule = {"topic": rest.topic("the-Parcels"), "message": {"data": "YQ=="}, "interval": "3600s"}
    await rest.ok("PUT", f"{rest.project}/schedules/count-parcels", schedule)
    account = {"accountId": "some-account", "serviceAccount": {"displayName": "Counts parcels"}}
    await rest.ok("POST", f"{rest.project}/serviceAccounts", account)
    key = {"displayName": "parcels of the web site", "roles": ["roles/viewer"]}
    await rest.ok("POST", f"{rest.project}/apiKeys", key)
    role = {"title": "Reader of parcels", "includedPermissions": ["pubsub.topics.get"]}
    await rest.ok("POST", f"{rest.project}/roles", {"roleId": "reader", "role": role})
    bindings = [{"role": "roles/viewer", "members": ["user:ann@example.com", "group:parcels@example.com"]}]
    await rest.ok("POST", f"{rest.topic('the-Parcels')}:setIamPolicy", {"policy": {"bindings": bindings}})
    operation = await rest.ok("POST", f"{subscription}:purge", {"filter": "attributes:a"})
    await rest.create_topic("other")

    found = await search(rest, "PARCELS")
    assert [(result["kind"], result["matchedField"], result["matchedValue"]) for result in found] == [
        ("TOPIC", "name", "the-Parcels"),
        ("SUBSCRIPTION", "name", "parcels-billing"),
        ("SNAPSHOT", "name", "parcels-1"),
        ("SCHEMA", "name", "parcels"),
        ("SCHEDULE", "name", "count-parcels"),
        ("OPERATION", "target", "parcels-billing"),
        ("SERVICE_ACCOUNT", "displayName", "Counts parcels"),
        ("API_KEY", "displayName", "parcels of the web site"),
        ("ROLE", "title", "Reader of parcels"),
        ("POLICY", "members", "group:parcels@example.com"),
    ]
    assert found[0]["name"] == found[-1]["name"] == rest.topic("the-Parcels")
    assert found[5]["name"] == operation["name"]
    for size in (1, 3):
        assert await search(rest, "PARCELS", pageSize=size) == found
    for result in found[:-1]:
        assert (await rest.call("GET", result["name"])).status_code == 200, result


async def test_what_has_the_text_as_its_id_or_name_comes_first_and_once(rest: Rest) -> None:
    for name in ("a-orders", "orders", "z-orders"):
        await rest.create_topic(name)
    await rest.create_subscription("orders", topic="orders")
    expected = ["topics/orders", "subscriptions/orders", "topics/a-orders", "topics/z-orders"]
    assert names(rest, await search(rest, "orders")) == expected
    assert names(rest, await search(rest, " orders ", pageSize=1)) == expected
    assert names(rest, await search(rest, "topics/orders")) == ["topics/orders"]
    assert names(rest, await search(rest, rest.subscription("orders"))) == ["subscriptions/orders"]


async def test_labels_are_found_by_key_by_value_and_by_both(rest: Rest) -> None:
    await rest.create_topic(labels={"team": "billing", "stage": "test"})
    await rest.create_subscription(labels={"team": "shipping"})
    for text, value in (("stage", "stage=test"), ("bill", "team=billing"), ("team=billing", "team=billing")):
        [result] = await search(rest, text)
        assert (result["name"], result["matchedField"], result["matchedValue"]) == (rest.topic(), "labels", value)
    assert names(rest, await search(rest, "team")) == names(
        rest, [{"name": rest.topic()}, {"name": rest.subscription()}]
    )


async def test_a_message_id_finds_the_message_in_its_own_project_alone(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("other")
    [message_id] = await rest.publish("a", topic="other")
    [result] = await search(rest, message_id)
    assert (result["kind"], result["matchedField"]) == ("MESSAGE", "messageId")
    assert result["name"] == f"{rest.topic('other')}/messages/{message_id}"
    assert await search(rest, str(int(message_id) + 1)) == []
    answer = await rest.ok("GET", "projects/another-project:search", params={"q": message_id})
    assert "results" not in answer


async def test_a_text_stands_for_itself_and_not_for_a_pattern(rest: Rest) -> None:
    await rest.create_topic("some_topic")
    await rest.create_topic("some-topic")
    assert names(rest, await search(rest, "e_t")) == ["topics/some_topic"]
    for text in ("%", "some%topic", "\\", "'"):
        assert await search(rest, text) == []


async def test_a_project_with_a_longer_name_is_not_searched(rest: Rest) -> None:
    await rest.create_topic("orders")
    for project in (f"{rest.project}-x", f"{rest.project}0"):
        await rest.ok("PUT", f"{project}/topics/orders")
        policy = {"bindings": [{"role": "roles/viewer", "members": ["user:orders@example.com"]}]}
        for resource in (project, f"{project}/topics/orders"):
            await rest.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})
    assert names(rest, await search(rest, "orders")) == ["topics/orders"]


async def test_the_policy_of_the_project_is_searched_and_comes_first(rest: Rest) -> None:
    await rest.create_topic()
    policy = {"bindings": [{"role": "roles/viewer", "members": ["user:ann@example.com"]}]}
    for resource in (rest.topic(), rest.project):
        await rest.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})
    for query in ({}, {"pageSize": 1}):
        found = await search(rest, "ann@", **query)
        assert [(result["kind"], result["name"]) for result in found] == [
            ("POLICY", rest.project),
            ("POLICY", rest.topic()),
        ]


async def test_only_the_kinds_that_are_asked_for_are_searched(rest: Rest) -> None:
    await rest.create_topic("orders")
    await rest.create_subscription("orders", topic="orders")
    policy = {"bindings": [{"role": "roles/viewer", "members": ["user:orders@example.com"]}]}
    await rest.ok("POST", f"{rest.project}:setIamPolicy", {"policy": policy})
    for kinds, names in {
        "POLICY": [rest.project],
        "SUBSCRIPTION,TOPIC": [rest.topic("orders"), rest.subscription("orders")],
        "MESSAGE": [],
    }.items():
        answer = await rest.ok("GET", f"{rest.project}:search", params={"q": "orders", "kinds": kinds})
        assert [one["name"] for one in answer.get("results", ())] == names
        assert sorted(answer["searchedKinds"]) == sorted(kinds.split(","))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({}, "q must be given: a part of a name, a label or a principal, or a message id (q=)."),
        ({"q": "  "}, "q must be given: a part of a name, a label or a principal, or a message id (q=)."),
        ({"q": "x" * (MAX_TEXT + 1)}, f"q has {MAX_TEXT + 1} characters; {MAX_TEXT} are the most."),
        ({"q": "\0x"}, "q has the character U+0000."),
        (
            {"q": "x", "kinds": "TOPIC,QUEUE"},
            f"kinds has 'QUEUE', which is no kind; these are: {', '.join(ResultKind)}.",
        ),
        ({"q": "x", "pageSize": -1}, "page_size must not be negative (page_size=-1)."),
        ({"q": "x", "pageToken": "x"}, "Invalid page token given (page_token=x)."),
    ],
    ids=["none", "spaces", "too long", "a zero", "kind", "page size", "page token"],
)
async def test_a_bad_search_is_refused(rest: Rest, query: Json, message: str) -> None:
    assert await rest.error("GET", f"{rest.project}:search", params=query) == ("INVALID_ARGUMENT", message)
