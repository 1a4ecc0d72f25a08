"""The predefined roles are told to whoever has a credential."""

import pytest

from broker.access.principals.permissions import PERMISSIONS, PREDEFINED_ROLES
from broker.model.page import page_token
from tests.fixtures.access import Guarded

PUBLISHER = "roles/pubsub.publisher"


async def test_a_predefined_role_is_described_to_any_caller_with_a_credential(broker: Guarded) -> None:
    shown = broker.bearer(await broker.key(await broker.account(role="")))
    reported = await broker.ok("GET", PUBLISHER, headers=shown)
    assert reported == {
        "name": PUBLISHER,
        "title": "Pub/Sub Publisher",
        "description": reported["description"],
        "includedPermissions": ["pubsub.topics.publish"],
        "stage": "GA",
        "etag": "AA==",
    }
    owner = await broker.ok("GET", "roles/owner", headers=shown)
    assert owner["includedPermissions"] == sorted(PERMISSIONS)
    for path in ("roles", PUBLISHER):
        assert (await broker.call("GET", path, headers={})).status_code == 401


async def test_all_predefined_roles_are_listed_by_name_with_permissions_in_the_full_view(broker: Guarded) -> None:
    basic = (await broker.ok("GET", "roles"))["roles"]
    assert [role["name"] for role in basic] == sorted(PREDEFINED_ROLES)
    assert not any("includedPermissions" in role for role in basic)
    for full in (await broker.ok("GET", "roles?view=FULL"))["roles"]:
        assert set(full["includedPermissions"]) == PREDEFINED_ROLES[full["name"]]


async def test_predefined_roles_come_in_pages(broker: Guarded) -> None:
    names: list[str] = []
    token = ""
    while True:
        page = await broker.ok("GET", f"roles?pageSize=8&pageToken={token}")
        assert len(page["roles"]) <= 8
        names += [role["name"] for role in page["roles"]]
        token = page.get("nextPageToken", "")
        if not token:
            break
    assert names == sorted(PREDEFINED_ROLES)


@pytest.mark.parametrize(
    ("path", "status", "named"),
    [
        ("roles/pubsub.flyer", 404, "roles/pubsub.flyer"),
        ("roles?view=SOME", 400, "SOME"),
        (f"roles?pageToken={page_token('projects/p')}", 400, "page_token"),  # of a project's list
        ("roles?parent=projects/guarded", 400, "parent"),
    ],
)
async def test_what_is_not_there_or_cannot_be_asked_is_refused_by_name(
    broker: Guarded, path: str, status: int, named: str
) -> None:
    refused = await broker.call("GET", path)
    assert refused.status_code == status
    assert named in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("role", "has", "has_not"),
    [
        ("roles/pubsub.viewer", "serviceusage.quotas.get", "pubsub.snapshots.seek"),
        ("roles/pubsub.editor", "serviceusage.quotas.get", "serviceusage.quotas.update"),
        ("roles/pubsub.admin", "serviceusage.quotas.get", "serviceusage.quotas.update"),
        ("roles/viewer", "pubsub.snapshots.seek", "pubsub.subscriptions.consume"),
        ("roles/viewer", "pubsub.schemas.getIamPolicy", "pubsub.topics.getIamPolicy"),
        ("roles/editor", "serviceusage.quotas.update", "pubsub.topics.setIamPolicy"),
        ("roles/serviceusage.apiKeysViewer", "apikeys.keys.list", "resourcemanager.projects.get"),
    ],
)
def test_a_predefined_role_has_what_googles_has(role: str, has: str, has_not: str) -> None:
    assert has in PREDEFINED_ROLES[role]
    assert has_not not in PREDEFINED_ROLES[role]
