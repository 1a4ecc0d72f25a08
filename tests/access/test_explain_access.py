"""Why a principal has a permission, or lacks it."""

import pytest

from broker.access.policies.explanation import explain
from broker.access.principals.caller import ALL_AUTHENTICATED_USERS, ALL_USERS, Caller
from broker.access.principals.permissions import PREDEFINED_ROLES
from broker.access.principals.policy import ABOVE_PROJECTS, NO_POLICY, Binding, Policy, chain_of
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json

TOPIC = "projects/guarded/topics/orders"
PUBLISH = "pubsub.topics.publish"


async def _bind(broker: Guarded, resource: str, role: str, *members: str) -> None:
    policy = {"bindings": [{"role": role, "members": list(members)}]}
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})


async def _explained(broker: Guarded, principal: str, permission: str = PUBLISH, resource: str = TOPIC) -> Json:
    body = {"principal": principal, "permission": permission, "resource": resource}
    return await broker.ok("POST", "projects/guarded:explainAccess", body)


async def test_it_says_by_which_role_on_which_level_a_permission_is_granted(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    await _bind(broker, TOPIC, "roles/pubsub.publisher", "user:alice@example.com")
    await _bind(broker, "projects/guarded", "roles/pubsub.editor", "domain:example.com", "allAuthenticatedUsers")
    assert await _explained(broker, "user:Alice@example.com") == {
        "access": "GRANTED",
        "explanation": (
            f"user:alice@example.com has {PUBLISH} on {TOPIC}: "
            f"the policy of {TOPIC} gives it roles/pubsub.publisher; "
            "the policy of projects/guarded gives allAuthenticatedUsers roles/pubsub.editor; "
            "the policy of projects/guarded gives domain:example.com roles/pubsub.editor."
        ),
        "grantedBy": [
            {
                "level": "RESOURCE",
                "resource": TOPIC,
                "role": "roles/pubsub.publisher",
                "member": "user:alice@example.com",
            },
            *(
                {
                    "level": "PROJECT",
                    "resource": "projects/guarded",
                    "role": "roles/pubsub.editor",
                    "member": member,
                }
                for member in ("allAuthenticatedUsers", "domain:example.com")
            ),
        ],
    }
    admin = await _explained(broker, f"serviceAccount:{broker.admin['client_email']}")
    assert [given["level"] for given in admin["grantedBy"]] == ["PROJECT", "INSTALLATION"]
    assert admin["explanation"].endswith("; the policy of the installation gives it roles/owner.")


async def test_it_says_what_is_missing_and_which_roles_would_do(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    policy = [
        {"role": "roles/pubsub.viewer", "members": ["user:alice@example.com"]},
        {"role": "roles/pubsub.publisher", "members": ["group:buyers@example.com"]},
    ]
    await broker.ok("POST", "projects/guarded:setIamPolicy", {"policy": {"bindings": policy}})
    explained = await _explained(broker, "user:alice@example.com")
    assert explained.pop("rolesWithPermission") == [
        "roles/editor",
        "roles/owner",
        "roles/pubsub.admin",
        "roles/pubsub.editor",
        "roles/pubsub.publisher",
    ]
    assert explained == {
        "access": "NOT_GRANTED",
        "explanation": (
            f"user:alice@example.com does not have {PUBLISH} on {TOPIC}: the policies of {TOPIC}, projects/guarded "
            "and the installation give it no role with that permission. It has roles/pubsub.viewer on "
            "projects/guarded. It would have the permission as a member of group:buyers@example.com, which only "
            "its token shows. These roles have the permission: roles/editor, roles/owner, roles/pubsub.admin, "
            "roles/pubsub.editor and roles/pubsub.publisher."
        ),
    }


async def test_an_account_that_cannot_call_has_no_permission_whatever_its_roles(broker: Guarded) -> None:
    account = await broker.account(role="roles/owner")
    member = f"serviceAccount:{account['email']}"
    assert (await _explained(broker, member, resource="projects/guarded"))["access"] == "GRANTED"
    await broker.ok("POST", f"{account['name']}:disable")
    explained = await _explained(broker, member, resource="projects/guarded")
    assert (explained["access"], "the service account is disabled" in explained["explanation"]) == (
        "NOT_GRANTED",
        True,
    )
    await broker.ok("DELETE", account["name"])
    explained = await _explained(broker, member, resource="projects/guarded")
    assert "there is no such service account" in explained["explanation"]


async def test_an_api_key_has_its_own_roles_where_it_is_restricted_to_and_no_others(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    await broker.ok("PUT", f"{TOPIC}-2")
    await _bind(broker, "projects/guarded", "roles/pubsub.publisher", "allUsers")
    body = {"roles": ["roles/pubsub.publisher"], "resources": [TOPIC]}
    key = await broker.ok("POST", "projects/guarded/apiKeys", body)
    explained = await _explained(broker, f"apiKey:{key['name']}")
    assert explained["grantedBy"] == [
        {
            "level": "CREDENTIAL",
            "resource": TOPIC,
            "role": "roles/pubsub.publisher",
            "member": f"apiKey:{key['name']}",
        }
    ]
    other = await _explained(broker, f"apiKey:{key['name']}", resource=f"{TOPIC}-2")
    assert (other["access"], "an API key has the roles" in other["explanation"]) == ("NOT_GRANTED", True)
    await broker.ok("DELETE", key["name"])
    explained = await _explained(broker, f"apiKey:{key['name']}")
    assert "there is no such API key" in explained["explanation"]


async def test_policies_that_the_caller_may_not_read_are_not_shown(broker: Guarded) -> None:
    await broker.ok("PUT", TOPIC)
    viewer = broker.bearer(await broker.key(await broker.account(role="roles/viewer")))
    await _bind(broker, TOPIC, "roles/pubsub.publisher", "group:buyers@example.com")
    body = {"principal": "group:buyers@example.com", "permission": PUBLISH, "resource": TOPIC}
    shown = await broker.ok("POST", "projects/guarded:explainAccess", body, headers=viewer)
    assert shown == {
        "access": "GRANTED",
        "explanation": (
            f"group:buyers@example.com has {PUBLISH} on {TOPIC}: the policy of {TOPIC}, which you may not read, "
            "gives it a role."
        ),
        "grantedBy": [{"level": "RESOURCE", "resource": TOPIC}],
    }
    body["permission"] = "pubsub.topics.delete"
    shown = await broker.ok("POST", "projects/guarded:explainAccess", body, headers=viewer)
    assert "publisher on" not in shown["explanation"]
    admin = f"serviceAccount:{broker.admin['client_email']}"
    shown = await broker.ok("POST", "projects/guarded:explainAccess", body | {"principal": admin}, headers=viewer)
    assert shown["grantedBy"] == [{"level": "INSTALLATION"}]


def test_callers_who_ask_about_themselves_are_known_with_their_groups() -> None:
    members = frozenset({"user:a@b.c", "group:buyers@b.c", ALL_USERS, ALL_AUTHENTICATED_USERS})
    policies = dict.fromkeys(chain_of(TOPIC), NO_POLICY)
    policies[ABOVE_PROJECTS] = Policy((Binding("roles/pubsub.publisher", frozenset({"group:buyers@b.c"})),))
    explained = explain(
        Caller("user:a@b.c", members, "oidc:x"),
        PUBLISH,
        TOPIC,
        chain=chain_of(TOPIC),
        policies=policies,
        roles=PREDEFINED_ROLES,
    )
    assert explained.sentence.endswith(
        "the policy of the installation gives group:buyers@b.c roles/pubsub.publisher."
    )
    assert explained.groups == []


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({}, 400, "principal must be given"),
        ({"principal": "alice"}, 400, "Invalid policy member (principal=alice)"),
        ({"principal": "user:a@b.c", "permission": "pubsub.fly"}, 400, "Permission pubsub.fly is not valid"),
        (
            {"principal": "user:a@b.c", "permission": PUBLISH, "resource": "projects/other"},
            400,
            "resource must be the full name of a resource of projects/guarded (resource=projects/other)",
        ),
        ({"principal": "user:a@b.c", "permission": PUBLISH, "resource": TOPIC}, 404, "orders"),
    ],
)
async def test_what_cannot_be_explained_is_refused(broker: Guarded, body: Json, status: int, said: str) -> None:
    refused = await broker.call("POST", "projects/guarded:explainAccess", body)
    assert (refused.status_code, said in refused.json()["error"]["message"]) == (status, True), refused.text
