"""Names of resources: what breaks the rules is an invalid argument on every call, and the answer says the rule.

NOT_FOUND would be false comfort: clients that create what they do not find would go on to do so.
"""

from typing import Any
from urllib.parse import quote

import pytest

from tests.fixtures.broker import Rest, message

BAD_IDS = ["123", "ab", "-abc", "a" * 256, "goog-x", "GOOGx", "a b c", "tö-pic", "a*bc", "a\nbc", "a/bc"]
BAD_PROJECTS = ["p" * 64, "a" * 4_000, "a b", "prö", "a\nb", "a/b", "a\\b", "a@b", "a'b"]
TOPIC_CALLS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", "", None),
    "create": ("PUT", "", {}),
    "update": ("PATCH", "", {"topic": {"labels": {}}, "updateMask": "labels"}),
    "delete": ("DELETE", "", None),
    "publish": ("POST", ":publish", {"messages": [message("x")]}),
    "list subscriptions": ("GET", "/subscriptions", None),
    "list snapshots": ("GET", "/snapshots", None),
    "test a filter": ("POST", ":testFilter", {}),
}
SUBSCRIPTION_CALLS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", "", None),
    "create": ("PUT", "", {"topic": "projects/p/topics/topic"}),
    "update": ("PATCH", "", {"subscription": {"labels": {}}, "updateMask": "labels"}),
    "delete": ("DELETE", "", None),
    "pull": ("POST", ":pull", {"maxMessages": 1}),
    "acknowledge": ("POST", ":acknowledge", {"ackIds": ["x"]}),
    "modify deadlines": ("POST", ":modifyAckDeadline", {"ackIds": ["x"], "ackDeadlineSeconds": 10}),
    "modify the push config": ("POST", ":modifyPushConfig", {"pushConfig": {}}),
    "detach": ("POST", ":detach", None),
    "seek": ("POST", ":seek", {"time": "2026-01-01T00:00:00Z"}),
    "nack": ("POST", ":nack", {"ackIds": ["x"]}),
    "reject": ("POST", ":reject", {"ackIds": ["x"]}),
    "read the position": ("GET", "/snapshot", None),
    "read the push status": ("GET", ":pushStatus", None),
    "list push failures": ("GET", ":pushFailures", None),
    "pause": ("POST", ":pausePush", {}),
    "resume": ("POST", ":resumePush", {}),
    "test a filter": ("POST", ":testFilter", {}),
}
SNAPSHOT_CALLS: dict[str, tuple[str, str, Any]] = {
    "get": ("GET", "", None),
    "create": ("PUT", "", {"subscription": "projects/p/subscriptions/sub"}),
    "update": ("PATCH", "", {"snapshot": {"labels": {}}, "updateMask": "labels"}),
    "delete": ("DELETE", "", None),
}
CALLS = [
    pytest.param(collection, *call, id=f"{collection}: {name}")
    for collection, calls in (
        ("topics", TOPIC_CALLS),
        ("subscriptions", SUBSCRIPTION_CALLS),
        ("snapshots", SNAPSHOT_CALLS),
    )
    for name, call in calls.items()
]


def _escaped(name: str) -> str:
    return quote(name, safe="")


@pytest.mark.parametrize(("collection", "method", "verb", "body"), CALLS)
async def test_an_id_that_none_can_have_is_an_invalid_argument_on_every_call(
    rest: Rest, collection: str, method: str, verb: str, body: Any
) -> None:
    status, text = await rest.error(method, f"{rest.project}/{collection}/123{verb}", body)
    assert status == "INVALID_ARGUMENT"
    assert text.startswith(
        f"Invalid [{collection}] name: (name={rest.project}/{collection}/123). An id has 3 to 255 "
    )


@pytest.mark.parametrize("bad", BAD_IDS)
async def test_the_rule_of_ids_is_told_with_the_name(rest: Rest, bad: str) -> None:
    rule = "It must be projects/{project}/topics/{topic}." if "/" in bad else "begins with a letter"
    for method in ("PUT", "GET"):
        status, text = await rest.error(
            method, f"{rest.project}/topics/{_escaped(bad)}", {} if method == "PUT" else None
        )
        assert status == "INVALID_ARGUMENT"
        assert text.startswith(f"Invalid [topics] name: (name={rest.project}/topics/{bad[:200]}")
        assert rule in text


@pytest.mark.parametrize(("collection", "method", "verb", "body"), CALLS)
async def test_a_project_that_cannot_be_is_an_invalid_argument_on_every_call(
    rest: Rest, collection: str, method: str, verb: str, body: Any
) -> None:
    status, text = await rest.error(method, f"projects/a%20b/{collection}/name{verb}", body)
    assert status == "INVALID_ARGUMENT"
    assert text.startswith(
        f"Invalid [{collection}] name: (name=projects/a b/{collection}/name). A project has 1 to 63 "
    )


@pytest.mark.parametrize("bad", BAD_PROJECTS)
async def test_the_rule_of_projects_is_told_with_the_name(rest: Rest, bad: str) -> None:
    rule = "It must be projects/{project}/topics/{topic}." if "/" in bad else "A project has 1 to 63"
    for method in ("PUT", "GET"):
        path = f"projects/{_escaped(bad)}/topics/name"
        status, text = await rest.error(method, path, {} if method == "PUT" else None)
        assert status == "INVALID_ARGUMENT"
        assert text.startswith(f"Invalid [topics] name: (name=projects/{bad[:280]}")
        assert rule in text
        assert len(text) < 600


@pytest.mark.parametrize("collection", ["topics", "subscriptions", "snapshots"])
async def test_nothing_is_listed_of_a_project_that_cannot_be(rest: Rest, collection: str) -> None:
    for bad in ("a b", "a/b"):
        status, text = await rest.error("GET", f"projects/{_escaped(bad)}/{collection}")
        assert (status, "Invalid [projects] name" in text) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("owner", ["p", "p" * 63, "demo", "123456", "example.com:shop", "A_b.c:d~e+f%g-h"])
async def test_a_project_needs_not_exist_and_may_have_any_name_within_the_rule(rest: Rest, owner: str) -> None:
    name = f"projects/{owner}/topics/{rest.project.rpartition('/')[2]}"
    path = name.replace("%", "%25")
    assert await rest.ok("PUT", path, {}) == {"name": name}
    assert await rest.ok("GET", path) == {"name": name}
    assert await rest.ok("DELETE", path) == {}
    assert (await rest.error("GET", path))[0] == "NOT_FOUND"


@pytest.mark.parametrize("topic", ["_deleted-topic_", "projects/p/topics/_deleted-topic_", "topic", ""])
async def test_a_name_in_a_body_is_judged_alike(rest: Rest, topic: str) -> None:
    """`_deleted-topic_` is what a subscription shows, never a topic's name."""
    await rest.create_topic()
    await rest.create_subscription()
    policy = {"deadLetterTopic": topic}
    for method, path, body in (
        ("PUT", rest.subscription("other"), {"topic": topic}),
        ("PUT", rest.subscription("other"), {"topic": rest.topic(), "deadLetterPolicy": policy}),
        ("PATCH", rest.subscription(),
            {"subscription": {"deadLetterPolicy": policy}, "updateMask": "deadLetterPolicy"}),
        ("PUT", f"{rest.project}/snapshots/snap", {"subscription": topic.replace("topic", "subscription")}),
        ("POST", f"{rest.subscription()}:seek", {"snapshot": topic.replace("topic", "snapshot") or "x"}),
    ):  # fmt: skip
        status, text = await rest.error(method, path, body)
        assert (status, text[:9]) == ("INVALID_ARGUMENT", "Invalid ["), (method, path, text)
