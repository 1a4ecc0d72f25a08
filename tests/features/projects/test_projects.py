"""The projects that a caller may see."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.access.conftest import broker as broker  # a fixture
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json

TOPIC = "projects/guarded/topics/orders"


async def _bind(broker: Guarded, resource: str, role: str, *members: str) -> None:
    policy = {"bindings": [{"role": role, "members": list(members)}]}
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})


async def _seen(broker: Guarded, headers: Mapping[str, str], **query: Any) -> list[str]:
    """The names of all projects that are listed, page by page."""
    found: list[str] = []
    while True:
        answer = await broker.ok("GET", "projects", headers=headers, params=query)
        found += [project["name"] for project in answer.get("projects", [])]
        if "nextPageToken" not in answer:
            return found
        query["pageToken"] = answer["nextPageToken"]


async def _make_topics(broker: Guarded, projects: Sequence[str]) -> None:
    for project in projects:
        await broker.ok("PUT", f"projects/{project}/topics/orders")


async def test_the_administrator_sees_each_project_once_however_its_name_sorts(broker: Guarded) -> None:
    # "-" sorts before the "/" that ends the name of a project in those of its resources, "0" behind it.
    made = ["shop", "shop-x", "shop0", "shop.x", "a", "Z", "shopx"]
    await _make_topics(broker, made)
    await broker.ok("PUT", "projects/shop/topics/parcels")
    await broker.ok("PUT", "projects/shop-x/subscriptions/billing", {"topic": "projects/shop/topics/orders"})
    expected = sorted(f"projects/{name}" for name in [*made, "broker-system"])
    for size in (1, 2, 3, 100):
        assert await _seen(broker, broker.bearer(), pageSize=size) == expected


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("projects/new/serviceAccounts", {"accountId": "some-account"}),
        ("projects/new/apiKeys", {"roles": ["roles/pubsub.publisher"]}),
        ("projects/new/roles", {"roleId": "auditor", "role": {"includedPermissions": ["pubsub.topics.get"]}}),
        (
            "projects/new:setIamPolicy",
            {"policy": {"bindings": [{"role": "roles/viewer", "members": ["user:a@b.c"]}]}},
        ),
        ("projects/new/schemas?schemaId=order", {"type": "AVRO", "definition": '"string"'}),
    ],
    ids=["an account", "an API key", "a role", "a policy", "a schema"],
)
async def test_a_project_exists_once_it_has_anything(broker: Guarded, path: str, body: Json) -> None:
    assert "projects/new" not in await _seen(broker, broker.bearer())
    await broker.ok("POST", path, body)
    assert "projects/new" in await _seen(broker, broker.bearer())


async def test_a_caller_sees_the_projects_in_which_it_has_a_role_and_no_other(broker: Guarded) -> None:
    await _make_topics(broker, ["guarded", "one", "two", "three", "public", "open"])
    account = await broker.account(role="")
    member, headers = f"serviceAccount:{account['email']}", broker.bearer(await broker.key(account))
    assert await _seen(broker, headers) == []
    await _bind(broker, "projects/two", "roles/viewer", member)
    await _bind(broker, "projects/one/topics/orders", "roles/pubsub.publisher", member)
    # What everybody may do with a resource does not disclose the name of its project; what is open to all does.
    await _bind(broker, "projects/public/topics/orders", "roles/viewer", "allUsers")
    await _bind(broker, "projects/open", "roles/pubsub.viewer", "allAuthenticatedUsers")
    expected = ["projects/one", "projects/open", "projects/two"]
    assert await _seen(broker, headers) == await _seen(broker, headers, pageSize=1) == expected
    await broker.ok("DELETE", "projects/one/topics/orders")
    assert await _seen(broker, headers) == ["projects/open", "projects/two"]


async def test_a_role_without_a_permission_shows_no_project(broker: Guarded) -> None:
    role = {"roleId": "auditor", "role": {"includedPermissions": ["pubsub.topics.get"]}}
    await broker.ok("POST", "projects/guarded/roles", role)
    account = await broker.account(role="projects/guarded/roles/auditor")
    headers = broker.bearer(await broker.key(account))
    assert await _seen(broker, headers) == ["projects/guarded"]
    await broker.ok("DELETE", "projects/guarded/roles/auditor")
    assert await _seen(broker, headers) == []


async def test_an_api_key_sees_its_project_alone(broker: Guarded) -> None:
    await _make_topics(broker, ["guarded", "open"])
    await _bind(broker, "projects/open", "roles/viewer", "allUsers")
    key = await broker.ok("POST", "projects/guarded/apiKeys", {"roles": ["roles/pubsub.publisher"]})
    assert await _seen(broker, {"X-Goog-Api-Key": key["keyString"]}) == ["projects/guarded"]


async def test_who_shows_nothing_sees_no_project(broker: Guarded) -> None:
    await _make_topics(broker, ["open"])
    await _bind(broker, "projects/open", "roles/viewer", "allUsers")
    assert (await broker.call("GET", "projects", headers={})).status_code == 401
    bad = await broker.call("GET", "projects", params={"pageToken": "x"})
    assert (bad.status_code, bad.json()["error"]["message"]) == (400, "Invalid page token given (page_token=x).")
