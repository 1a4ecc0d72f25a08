"""Masking rules, saved views, message templates and link templates are made, changed, listed and deleted."""

import asyncio
from typing import Any

import pytest

from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.features.project_settings.kinds import MAX_RESOURCES
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json, Rest

WANTED: dict[str, Json] = {
    "maskingRules": {"title": "Cards", "topics": ["payments*"], "attributes": ["token"], "fields": ["$.card"]},
    "savedViews": {"title": "What is late", "page": "topics/orders/messages", "query": {"filter": "a=b"}},
    "messageTemplates": {"topic": "projects/p/topics/orders", "data": "YQ==", "attributes": {"a": "b"}},
    "linkTemplates": {"title": "Trace", "url": "https://traces.example.com/t/{traceId}?o={attributes.order}"},
}


def name(rest: Rest, collection: str, id_: str = "some-thing") -> str:
    return f"{rest.project}/{collection}/{id_}"


@pytest.mark.parametrize("collection", WANTED)
async def test_a_setting_is_shown_as_it_was_made_until_it_is_deleted(rest: Rest, collection: str) -> None:
    path, wanted = name(rest, collection), WANTED[collection]
    made = await rest.ok("PUT", path, wanted)
    assert made == {"name": path, **wanted} | {one: made[one] for one in ("createTime", "updateTime", "etag")}
    assert await rest.ok("GET", path) == made
    assert await rest.ok("GET", f"{rest.project}/{collection}") == {collection: [made]}
    assert (await rest.error("PUT", path, wanted))[0] == "ALREADY_EXISTS"
    preview = await rest.ok("DELETE", path, params={"validateOnly": "true"})
    assert preview["count"] == 0
    assert await rest.ok("GET", path) == made
    assert await rest.ok("DELETE", path) == {}
    for method in ("GET", "DELETE"):
        assert (await rest.error(method, path))[0] == "NOT_FOUND"
    assert (await rest.error("PATCH", path, {"title": "x"}))[0] == "NOT_FOUND"
    assert await rest.ok("GET", f"{rest.project}/{collection}") == {}


@pytest.mark.parametrize("collection", WANTED)
async def test_an_update_changes_what_is_named_if_the_etag_is_the_present_one(rest: Rest, collection: str) -> None:
    path = name(rest, collection)
    made = await rest.ok("PUT", path, WANTED[collection])
    changed = await rest.ok("PATCH", path, {"title": "Another", "etag": made["etag"]})
    assert changed == made | {one: changed[one] for one in ("etag", "updateTime")} | {"title": "Another"}
    assert changed["etag"] != made["etag"]
    status, text = await rest.error("PATCH", path, {"title": "x", "etag": made["etag"]})
    assert status == "ABORTED"
    assert made["etag"] in text
    assert (await rest.error("DELETE", path, params={"etag": made["etag"]}))[0] == "ABORTED"
    assert await rest.ok("GET", path) == changed
    masked = await rest.ok("PATCH", path, {"title": "Third"}, params={"updateMask": "title"})
    assert masked["title"] == "Third"
    for mask in ("name", "etag", "nothing"):
        status, text = await rest.error("PATCH", path, {"title": "x"}, params={"updateMask": mask})
        assert status == "INVALID_ARGUMENT"
        assert mask in text
    assert (await rest.error("PATCH", path, {}))[0] == "INVALID_ARGUMENT"
    await rest.ok("DELETE", path, params={"etag": masked["etag"]})


REFUSED: list[tuple[str, Json, str]] = [
    ("maskingRules", {}, "attributes or fields"),
    ("maskingRules", {"fields": ["card"]}, "fields[0]"),
    ("maskingRules", {"fields": ["$.a", "$[0]"]}, "fields[1]"),
    ("maskingRules", {"attributes": [""]}, "attributes[0]"),
    ("maskingRules", {"attributes": ["a"] * 51}, "attributes has 51 entries"),
    ("maskingRules", {"attributes": ["a"], "topics": ["projects/p/topics/t"]}, "topics[0]"),
    ("maskingRules", {"attributes": ["a\0"]}, "U+0000"),
    ("maskingRules", {"attributes": ["a"], "title": "x" * 1_001}, "title has 1001 characters"),
    ("maskingRules", {"attributes": ["a"], "colour": "red"}, "colour"),
    ("savedViews", {}, "page"),
    ("savedViews", {"page": "/topics"}, "page=/topics"),
    ("savedViews", {"page": "../projects/other"}, "page=../"),
    ("savedViews", {"page": "https://elsewhere.example"}, "page="),
    ("savedViews", {"page": "topics", "query": {"a": "x" * 2_001}}, "query"),
    ("savedViews", {"page": "topics", "query": {str(n): "x" for n in range(31)}}, "query has 31"),
    ("messageTemplates", {"data": "YQ=="}, "name"),
    ("messageTemplates", {"topic": "projects/p/topics/orders"}, "mess"),
    ("messageTemplates", {"topic": "projects/p/topics/orders", "attributes": {"goog-a": "b"}}, "goog"),
    ("messageTemplates", {"topic": "projects/p/topics/orders", "data": "AAAA" * 100_000}, "data has 300000 bytes"),
    ("linkTemplates", {"url": "https://a.example"}, "title"),
    ("linkTemplates", {"title": "x", "url": "javascript:alert(1)"}, "https://"),
    ("linkTemplates", {"title": "x", "url": "JavaScript://a.example/%0aalert(1)"}, "https://"),
    ("linkTemplates", {"title": "x", "url": "data:text/html,x"}, "https://"),
    ("linkTemplates", {"title": "x", "url": "https://{attributes.host}/"}, "host"),
    ("linkTemplates", {"title": "x", "url": "https://user@a.example/"}, "user names"),
    ("linkTemplates", {"title": "x", "url": "https://a.example/{password}"}, "{password}"),
    ("linkTemplates", {"title": "x", "url": "https://a.example/\"><script>"}, "characters"),
    ("linkTemplates", {"title": "x", "url": "https://a.example/{traceId"}, "characters"),
    ("linkTemplates", {"title": "x", "url": "https://a.example/" + "x" * 2_000}, "maximum is 2000"),
    ("linkTemplates", {"title": "x", "url": "https:///x"}, "host"),
]  # fmt: skip


@pytest.mark.parametrize(("collection", "wanted", "said"), REFUSED)
async def test_a_setting_that_cannot_be_is_refused_by_its_field(
    rest: Rest, collection: str, wanted: Json, said: str
) -> None:
    status, text = await rest.error("PUT", name(rest, collection), wanted)
    assert status == "INVALID_ARGUMENT"
    assert said in text
    assert await rest.ok("GET", f"{rest.project}/{collection}") == {}
    await rest.ok("PUT", name(rest, collection), WANTED[collection])
    before = await rest.ok("GET", name(rest, collection))
    if set(wanted) - {"name"} and said not in ("attributes or fields", "page", "title", "name", "mess"):
        assert (await rest.error("PATCH", name(rest, collection), wanted))[0] == "INVALID_ARGUMENT"
    assert await rest.ok("GET", name(rest, collection)) == before


@pytest.mark.parametrize("collection", WANTED)
async def test_names_follow_the_rules_of_names(rest: Rest, collection: str) -> None:
    for id_ in ("ab", "1abc", "a" * 256, "google-x"):
        assert (await rest.error("PUT", name(rest, collection, id_), WANTED[collection]))[0] == "INVALID_ARGUMENT"


async def test_a_project_has_so_many_of_a_kind_and_lists_them_in_pages(rest: Rest) -> None:
    wanted = WANTED["savedViews"]
    paths = [name(rest, "savedViews", f"view-{number:03}") for number in range(MAX_RESOURCES)]
    await asyncio.gather(*[rest.ok("PUT", path, wanted) for path in paths])
    status, text = await rest.error("PUT", name(rest, "savedViews", "one-more"), wanted)
    assert status == "RESOURCE_EXHAUSTED"
    assert str(MAX_RESOURCES) in text
    await rest.ok("PUT", name(rest, "linkTemplates"), WANTED["linkTemplates"])  # another kind has its own
    found, query = list[str](), dict[str, Any](pageSize="70")
    while True:
        answer = await rest.ok("GET", f"{rest.project}/savedViews", params=query)
        found += [each["name"] for each in answer["savedViews"]]
        if "nextPageToken" not in answer:
            break
        query["pageToken"] = answer["nextPageToken"]
    assert found == paths
    await rest.ok("DELETE", paths[0])
    await rest.ok("PUT", name(rest, "savedViews", "one-more"), wanted)


async def test_settings_go_with_their_project(resettable: Rest) -> None:
    rest = resettable
    for collection, wanted in WANTED.items():
        await rest.ok("PUT", name(rest, collection), wanted)
    assert rest.project in {each["name"] for each in (await rest.ok("GET", "projects"))["projects"]}
    await rest.ok("POST", f"{rest.project}:reset")
    for collection in WANTED:
        assert await rest.ok("GET", f"{rest.project}/{collection}") == {}


async def test_only_some_roles_change_masking_rules(broker: Guarded) -> None:
    path = "projects/guarded/maskingRules/cards"
    may = {"roles/editor": False, "roles/pubsub.editor": False, "roles/viewer": False, "roles/pubsub.admin": True}
    for role, allowed in may.items():
        headers = broker.bearer(await broker.key(await broker.account(role[6:].replace(".", "-"), role=role)))
        made = await broker.call("PUT", path, WANTED["maskingRules"], headers=headers)
        assert made.status_code == (200 if allowed else 403), role
        assert (await broker.call("GET", "projects/guarded/maskingRules", headers=headers)).status_code == 200


def test_only_these_roles_let_their_members_look() -> None:
    looking = {
        role: {name for name in has if name.startswith("pubsub.messages.")}
        for role, has in PREDEFINED_ROLES.items()
    }
    every = {f"pubsub.messages.{verb}" for verb in ("view", "viewAttributes", "viewMasked")}
    assert {role: has for role, has in looking.items() if has} == {
        "roles/owner": every,
        "roles/pubsub.admin": every,
        "roles/pubsub.messageViewer": {"pubsub.messages.viewMasked"},
        "roles/pubsub.messageAttributesViewer": {"pubsub.messages.viewAttributes"},
    }
