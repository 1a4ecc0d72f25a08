"""Lists of callers who may see single resources of a project, and the permissions that one has on many of them."""

import grpc
import pytest

from broker.access.principals.policy import MAX_TESTED_RESOURCES
from broker.api.generated.messages import request_of, response_of
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json

LISTS = {"topics": "pubsub.topics", "subscriptions": "pubsub.subscriptions", "snapshots": "pubsub.snapshots"}
LISTS |= {"schemas": "pubsub.schemas"}
RPCS = {"topics": "Publisher.ListTopics", "subscriptions": "Subscriber.ListSubscriptions"}
RPCS |= {"snapshots": "Subscriber.ListSnapshots", "schemas": "SchemaService.ListSchemas"}


async def _furnish(broker: Guarded) -> None:
    for number in range(4):
        topic = await broker.ok("PUT", f"projects/guarded/topics/topics-{number}")
        name = f"projects/guarded/subscriptions/subscriptions-{number}"
        await broker.ok("PUT", name, {"topic": topic["name"]})
        await broker.ok("PUT", f"projects/guarded/snapshots/snapshots-{number}", {"subscription": name})
        query, schema = {"schemaId": f"schemas-{number}"}, {"type": "AVRO", "definition": '"string"'}
        await broker.ok("POST", "projects/guarded/schemas", schema, params=query)


async def _bind(broker: Guarded, resource: str, role: str, *members: str) -> None:
    policy = {"bindings": [{"role": role, "members": list(members)}]}
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})


async def _somebody(broker: Guarded) -> tuple[str, dict[str, str]]:
    account = await broker.account(role="")
    return f"serviceAccount:{account['email']}", broker.bearer(await broker.key(account))


async def _listed(broker: Guarded, collection: str, headers: dict[str, str], size: int = 100) -> list[str]:
    found, query = list[str](), {"pageSize": str(size)}
    while True:
        answer = await broker.ok("GET", f"projects/guarded/{collection}", headers=headers, params=query)
        found += [each["name"].rpartition("/")[2] for each in answer.get(collection, [])]
        if "nextPageToken" not in answer:
            return found
        query["pageToken"] = answer["nextPageToken"]


async def _listed_by_grpc(broker: Guarded, collection: str, headers: dict[str, str]) -> list[str]:
    rpc = RPCS[collection]
    service, _, method = rpc.partition(".")
    request = request_of(rpc)()
    setattr(request, "parent" if collection == "schemas" else "project", "projects/guarded")
    metadata = tuple((key.lower(), value) for key, value in headers.items())
    async with grpc.aio.insecure_channel(broker.client.base_url.netloc.decode()) as channel:
        call = channel.unary_unary(f"/google.pubsub.v1.{service}/{method}")
        answer_class = response_of(rpc)
        assert answer_class is not None
        answer = answer_class.FromString(await call(request.SerializeToString(), metadata=metadata))
    return [each.name.rpartition("/")[2] for each in getattr(answer, collection)]


@pytest.mark.parametrize("collection", LISTS)
async def test_a_list_shows_what_its_caller_may_see_where_the_project_does_not_let_it_list(
    broker: Guarded, collection: str
) -> None:
    await _furnish(broker)
    member, headers = await _somebody(broker)
    path = f"projects/guarded/{collection}"
    refused = await broker.call("GET", path, headers=headers)
    assert (refused.status_code, f"{LISTS[collection]}.list" in refused.text) == (403, True)
    shown = [f"{collection}-{number}" for number in (0, 1, 3)]
    for name in shown[:2]:
        await _bind(broker, f"{path}/{name}", "roles/viewer", member)
    await _bind(broker, f"{path}/{shown[2]}", "roles/viewer", "allAuthenticatedUsers")
    await _bind(broker, f"{path}/{collection}-2", "roles/pubsub.publisher", member)  # does not allow to list
    for size in (1, 2, 100):
        assert await _listed(broker, collection, headers, size) == shown
    assert await _listed_by_grpc(broker, collection, headers) == shown
    await broker.ok("DELETE", f"{path}/{shown[0]}")
    await _bind(broker, f"{path}/{shown[1]}", "roles/viewer", "user:a@b.c")
    assert await _listed(broker, collection, headers) == shown[2:]
    await _bind(broker, "projects/guarded", "roles/viewer", member)
    assert await _listed(broker, collection, headers) == [f"{collection}-{number}" for number in (1, 2, 3)]


async def test_service_accounts_are_listed_as_far_as_they_may_be_seen(broker: Guarded) -> None:
    seen, _ = await broker.account("some-seen", role=""), await broker.account("some-hidden", role="")
    member, headers = await _somebody(broker)
    path = "projects/guarded/serviceAccounts"
    assert (await broker.call("GET", path, headers=headers)).status_code == 403
    await _bind(broker, seen["name"], "roles/viewer", member)
    answer = await broker.ok("GET", path, headers=headers)
    assert [account["email"] for account in answer["accounts"]] == [seen["email"]]


async def test_an_api_key_lists_the_resources_that_it_is_restricted_to(broker: Guarded) -> None:
    await _furnish(broker)
    await _bind(broker, "projects/guarded/topics/topics-2", "roles/viewer", "allAuthenticatedUsers")
    body = {"roles": ["roles/viewer"], "resources": ["projects/guarded/topics/topics-1"]}
    key = await broker.ok("POST", "projects/guarded/apiKeys", body)
    assert await _listed(broker, "topics", {"X-Goog-Api-Key": key["keyString"]}) == ["topics-1"]


async def _tested(broker: Guarded, body: Json, headers: dict[str, str]) -> Json:
    return await broker.ok("POST", "projects/guarded:testIamPermissions", body, headers=headers)


async def test_permissions_are_tested_on_many_resources_at_once(broker: Guarded) -> None:
    await _furnish(broker)
    member, headers = await _somebody(broker)
    await _bind(broker, "projects/guarded", "roles/pubsub.publisher", member)
    await _bind(broker, "projects/guarded/subscriptions/subscriptions-1", "roles/pubsub.subscriber", member)
    permissions = ["pubsub.topics.publish", "pubsub.subscriptions.consume"]
    names = [
        f"projects/guarded/{name}"
        for name in ("topics/topics-0", "subscriptions/subscriptions-0", "subscriptions/subscriptions-1")
    ]
    names += ["projects/guarded/topics/missing", "projects/guarded", "projects/guarded/nothing/of-the-kind"]
    answer = await _tested(broker, {"permissions": permissions, "resources": names}, headers)
    assert answer == {
        "permissions": ["pubsub.topics.publish"],
        "resources": [
            {"name": names[0], "permissions": ["pubsub.topics.publish"]},
            {"name": names[1], "permissions": ["pubsub.topics.publish"]},
            {"name": names[2], "permissions": permissions},
            {"name": names[3], "permissions": []},
            {"name": names[4], "permissions": ["pubsub.topics.publish"]},
            {"name": names[5], "permissions": []},
        ],
    }
    for one in answer["resources"][:4]:
        single = await broker.ok(
            "POST", f"{one['name']}:testIamPermissions", {"permissions": permissions}, headers=headers
        )
        assert single.get("permissions", []) == one["permissions"]


async def test_permissions_are_tested_above_projects(broker: Guarded) -> None:
    """An owner of the project has nothing there."""
    body = {"permissions": ["serviceusage.quotas.update"], "resources": ["projects/guarded", ""]}
    headers = broker.bearer(await broker.key(await broker.account(role="roles/owner")))
    owner, admin = await _tested(broker, body, headers), await _tested(broker, body, broker.bearer())
    assert [one["permissions"] for one in owner["resources"]] == [body["permissions"], []]
    assert [one["permissions"] for one in admin["resources"]] == [body["permissions"], body["permissions"]]


@pytest.mark.parametrize(
    ("path", "resources", "said"),
    [
        (
            "projects/guarded",
            ["projects/other/topics/t"],
            "resources must be full names of resources of projects/g",
        ),
        ("projects/guarded", ["topics/t"], "(resources='topics/t')"),
        ("projects/guarded", ["projects/guarded"] * (MAX_TESTED_RESOURCES + 1), "at most 100 resources at once"),
        ("projects/guarded", "projects/guarded", "Expected `array`"),
        ("projects/guarded/topics/topics-0", ["projects/guarded"], "only in a test of a project"),
    ],
)
async def test_resources_that_cannot_be_tested_are_refused(
    broker: Guarded, path: str, resources: object, said: str
) -> None:
    body = {"permissions": ["pubsub.topics.get"], "resources": resources}
    refused = await broker.call("POST", f"{path}:testIamPermissions", body)
    assert (refused.status_code, said in refused.json()["error"]["message"]) == (400, True), refused.text


async def test_figures_of_topics_name_a_subscription_only_to_callers_who_may_list_those(broker: Guarded) -> None:
    await broker.ok("PUT", "projects/guarded/topics/orders")
    await broker.ok("PUT", "projects/guarded/subscriptions/billing", {"topic": "projects/guarded/topics/orders"})
    role = {"roleId": "topics", "role": {"includedPermissions": ["pubsub.topics.list"]}}
    await broker.ok("POST", "projects/guarded/roles", role)
    account = await broker.account(role="projects/guarded/roles/topics")
    headers = broker.bearer(await broker.key(account))
    path = "projects/guarded/topics?view=STATS"
    [seen] = (await broker.ok("GET", path))["topics"]
    assert seen["stats"]["worstSubscription"]["subscription"] == "projects/guarded/subscriptions/billing"
    [seen] = (await broker.ok("GET", path, headers=headers))["topics"]
    assert seen["stats"]["subscriptionCount"] == 1
    assert "worstSubscription" not in seen["stats"]
