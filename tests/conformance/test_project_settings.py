"""Masking rules, saved views, message templates and link templates of a project; extensions."""

import pytest

from tests.fixtures.broker import Json, Rest

WANTED: dict[str, Json] = {
    "maskingRules": {"topics": ["payments*"], "attributes": ["token"], "fields": ["$.card"]},
    "savedViews": {"title": "What is late", "page": "topics", "query": {"filter": "a=b"}},
    "messageTemplates": {"topic": "projects/p/topics/orders", "data": "YQ==", "attributes": {"a": "b"}},
    "linkTemplates": {"title": "Trace", "url": "https://traces.example.com/t/{traceId}"},
}


@pytest.mark.parametrize("collection", WANTED)
async def test_a_setting_is_made_changed_listed_and_deleted(rest: Rest, collection: str) -> None:
    paths = [f"{rest.project}/{collection}/setting-{number}" for number in range(3)]
    made = [await rest.ok("PUT", path, WANTED[collection]) for path in paths]
    assert [each["name"] for each in made] == paths
    assert (await rest.error("PUT", paths[0], WANTED[collection]))[0] == "ALREADY_EXISTS"
    first = await rest.ok("GET", f"{rest.project}/{collection}?pageSize=2")
    rest_of_it = await rest.ok("GET", f"{rest.project}/{collection}?pageToken={first['nextPageToken']}")
    assert [*first[collection], *rest_of_it[collection]] == made
    changed = await rest.ok("PATCH", f"{paths[0]}?updateMask=title", {"title": "Another", "etag": made[0]["etag"]})
    assert (changed["title"], changed["etag"] != made[0]["etag"]) == ("Another", True)
    assert (await rest.error("PATCH", paths[0], {"title": "x", "etag": made[0]["etag"]}))[0] == "ABORTED"
    assert await rest.ok("GET", paths[0]) == changed
    assert await rest.ok("DELETE", paths[0]) == {}
    assert (await rest.error("GET", paths[0]))[0] == "NOT_FOUND"


@pytest.mark.parametrize(
    ("collection", "body", "said"),
    [
        ("maskingRules", {"fields": ["card"]}, "fields[0]"),
        ("savedViews", {"page": "https://elsewhere.example"}, "page="),
        ("messageTemplates", {"topic": "projects/p/topics/orders"}, "mess"),
        ("linkTemplates", {"title": "x", "url": "javascript:alert(1)"}, "https://"),
        ("linkTemplates", {"title": "x", "url": "https://a.example", "colour": "red"}, "colour"),
    ],
)
async def test_a_setting_that_cannot_be_is_refused(rest: Rest, collection: str, body: Json, said: str) -> None:
    code, why = await rest.error("PUT", f"{rest.project}/{collection}/setting", body)
    assert (code, said in why) == ("INVALID_ARGUMENT", True), why
    assert await rest.ok("GET", f"{rest.project}/{collection}") == {}
