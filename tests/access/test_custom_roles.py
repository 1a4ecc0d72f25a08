"""Roles of a project's own: made, changed, deleted, had back."""

from urllib.parse import quote

import pytest

from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json

TOPIC, ROLE = "projects/guarded/topics/orders", "projects/guarded/roles/billing.publisher"
PUBLISH: Json = {"messages": [{"data": "aGk="}]}


async def _publisher(broker: Guarded) -> dict[str, str]:
    """What an account shows that has the new role."""
    await broker.ok("PUT", TOPIC)
    body = {
        "roleId": "billing.publisher",
        "role": {"title": "Bills", "includedPermissions": ["pubsub.topics.publish"]},
    }
    made = await broker.ok("POST", "projects/guarded/roles", body)
    assert made == {"name": ROLE, "etag": made["etag"], **body["role"]}  # type: ignore[dict-item]
    return broker.bearer(await broker.key(await broker.account(role=ROLE)))


async def _may_publish(broker: Guarded, shown: dict[str, str]) -> bool:
    status = (await broker.call("POST", f"{TOPIC}:publish", PUBLISH, headers=shown)).status_code
    assert status in (200, 403)
    return status == 200


async def test_a_role_gives_what_it_has_now_and_nothing_while_it_is_deleted_or_disabled(broker: Guarded) -> None:
    shown = await _publisher(broker)
    assert await _may_publish(broker, shown)
    assert (await broker.call("GET", TOPIC, headers=shown)).status_code == 403
    await broker.ok(
        "PATCH", f"{ROLE}?updateMask=includedPermissions", {"includedPermissions": ["pubsub.topics.get"]}
    )
    assert not await _may_publish(broker, shown)
    assert (await broker.call("GET", TOPIC, headers=shown)).status_code == 200
    changed = await broker.ok("PATCH", ROLE, {"includedPermissions": ["pubsub.topics.publish"], "stage": "GA"})
    assert (changed["title"], changed["stage"]) == ("Bills", "GA")
    assert await _may_publish(broker, shown)
    await broker.ok("PATCH", f"{ROLE}?updateMask=stage", {"stage": "DISABLED"})
    assert not await _may_publish(broker, shown)
    await broker.ok("PATCH", f"{ROLE}?updateMask=stage", {"stage": "GA"})
    assert (await broker.ok("DELETE", ROLE))["deleted"] is True
    assert not await _may_publish(broker, shown)
    assert "deleted" not in await broker.ok("POST", f"{ROLE}:undelete", {})
    assert await _may_publish(broker, shown)


async def test_deleted_roles_are_listed_for_who_asks_and_permissions_in_the_full_view(broker: Guarded) -> None:
    await _publisher(broker)
    listed = (await broker.ok("GET", "projects/guarded/roles"))["roles"]
    assert [(role["name"], "includedPermissions" in role) for role in listed] == [(ROLE, False)]
    full = (await broker.ok("GET", "projects/guarded/roles?view=FULL"))["roles"]
    assert full == [await broker.ok("GET", ROLE)]
    await broker.ok("DELETE", ROLE)
    assert await broker.ok("GET", "projects/guarded/roles") == {}
    assert (await broker.ok("GET", "projects/guarded/roles?showDeleted=true"))["roles"][0]["deleted"] is True
    assert await broker.ok("GET", "projects/guarded-2/roles?showDeleted=true") == {}


@pytest.mark.parametrize(
    ("role_id", "role", "named"),
    [
        ("ok.role", {"includedPermissions": ["pubsub.topics.fly"]}, "pubsub.topics.fly"),
        ("a/b", {}, "a/b"),
        ("ok.role", {"stage": "LATE"}, "LATE"),
        ("ok.role", {"title": "t" * 101}, "title"),
    ],
)
async def test_a_role_that_cannot_be_is_refused_by_name(
    broker: Guarded, role_id: str, role: Json, named: str
) -> None:
    refused = await broker.call("POST", "projects/guarded/roles", {"roleId": role_id, "role": role})
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]
    assert await broker.ok("GET", "projects/guarded/roles?showDeleted=true") == {}


async def test_a_stale_etag_and_a_change_of_what_is_deleted_are_refused(broker: Guarded) -> None:
    await _publisher(broker)
    read = await broker.ok("GET", ROLE)
    await broker.ok("PATCH", ROLE, {"title": "New"} | {"etag": read["etag"]})
    stale = [
        await broker.call("PATCH", ROLE, {"title": "Newer", "etag": read["etag"]}),
        await broker.call("DELETE", f"{ROLE}?etag={quote(str(read['etag']))}"),
    ]
    assert [answer.status_code for answer in stale] == [409, 409]
    assert (await broker.call("POST", f"{ROLE}:undelete", {})).status_code == 400
    await broker.ok("DELETE", ROLE)
    assert (await broker.call("PATCH", ROLE, {"title": "Newer"})).status_code == 400
    assert (await broker.call("PATCH", f"{ROLE}2", {"title": "Newer"})).status_code == 404
    taken = await broker.call("POST", "projects/guarded/roles", {"roleId": "billing.publisher"})
    assert taken.status_code == 409


@pytest.mark.parametrize("role", ["roles/none.such", ROLE.replace("guarded", "other"), f"{ROLE}2"])
async def test_a_role_of_another_project_or_of_nobody_is_given_to_no_member_and_no_api_key(
    broker: Guarded, role: str
) -> None:
    await _publisher(broker)
    policy = {"policy": {"bindings": [{"role": role, "members": ["user:a@b.c"]}]}}
    for path, body in (("projects/guarded:setIamPolicy", policy), ("projects/guarded/apiKeys", {"roles": [role]})):
        refused = await broker.call("POST", path, body)
        assert refused.status_code == 400
        assert role in refused.json()["error"]["message"]


async def test_the_permissions_that_a_role_may_have_are_told(broker: Guarded) -> None:
    asked = {"fullResourceName": "//cloudresourcemanager.googleapis.com/projects/guarded"}
    reported = (await broker.ok("POST", "permissions:queryTestablePermissions", asked))["permissions"]
    assert {"name": "pubsub.topics.publish", "stage": "GA"} in reported
