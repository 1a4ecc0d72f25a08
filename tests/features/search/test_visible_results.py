"""A search finds what its caller may list, and nothing else."""

import pytest

from broker.features.search.rest import NEEDED
from broker.features.search.result import ResultKind
from tests.access.conftest import broker as broker  # a fixture
from tests.fixtures.access import Guarded
from tests.fixtures.broker import Json
from tests.fixtures.registered import RPCS

SEARCH = "projects/guarded:search"
TOPIC, OTHER = "projects/guarded/topics/orders", "projects/guarded/topics/orders-2"
SUBSCRIPTION = "projects/guarded/subscriptions/orders"
LISTED_BY = {
    ResultKind.TOPIC: "Publisher.ListTopics",
    ResultKind.SUBSCRIPTION: "Subscriber.ListSubscriptions",
    ResultKind.SNAPSHOT: "Subscriber.ListSnapshots",
    ResultKind.SCHEMA: "SchemaService.ListSchemas",
    ResultKind.SCHEDULE: "ListSchedules",
    ResultKind.OPERATION: "Operations.ListOperations",
    ResultKind.SERVICE_ACCOUNT: "IAM.ListServiceAccounts",
    ResultKind.API_KEY: "ApiKeys.ListApiKeys",
    ResultKind.ROLE: "IAM.ListRoles",
}


async def _bind(broker: Guarded, resource: str, role: str, member: str) -> None:
    policy = {"bindings": [{"role": role, "members": [member]}]}
    await broker.ok("POST", f"{resource}:setIamPolicy", {"policy": policy})


async def _caller(broker: Guarded, role: str = "") -> tuple[str, dict[str, str]]:
    """An account with the role on the project: as a member of policies, and its headers."""
    account = await broker.account(role=role)
    return f"serviceAccount:{account['email']}", broker.bearer(await broker.key(account))


async def _search(broker: Guarded, text: str, headers: dict[str, str]) -> tuple[list[str], list[str]]:
    """The names of what is found, and the kinds that were searched."""
    answer = await broker.ok("GET", SEARCH, headers=headers, params={"q": text})
    return [result["name"] for result in answer.get("results", [])], answer["searchedKinds"]


@pytest.fixture
async def orders(broker: Guarded) -> Json:
    """Topics, a subscription, and a policy that names a person; the message in the first topic."""
    for topic in (TOPIC, OTHER):
        await broker.ok("PUT", topic)
    await broker.ok("PUT", SUBSCRIPTION, {"topic": TOPIC})
    await _bind(broker, SUBSCRIPTION, "roles/viewer", "user:orders@example.com")
    return await broker.ok("POST", f"{TOPIC}:publish", {"messages": [{"data": "YQ=="}]})


@pytest.mark.parametrize("kind", LISTED_BY)
def test_callers_find_what_they_may_list(kind: ResultKind) -> None:
    [row] = [row for row in RPCS if row.name == LISTED_BY[kind]]
    [listed], [found] = row.needs.all, NEEDED[kind].all
    assert (found.permission, found.listed) == (listed.permission, listed.listed)


async def test_the_administrator_finds_all_kinds(broker: Guarded, orders: Json) -> None:
    found, kinds = await _search(broker, "orders", broker.bearer())
    assert found == [TOPIC, SUBSCRIPTION, OTHER, SUBSCRIPTION]
    assert kinds == list(ResultKind)
    [message_id] = orders["messageIds"]
    assert (await _search(broker, message_id, broker.bearer()))[0] == [f"{TOPIC}/messages/{message_id}"]


async def test_a_caller_with_a_role_on_a_topic_finds_that_topic_alone(broker: Guarded, orders: Json) -> None:
    member, headers = await _caller(broker)
    refused = await broker.call("GET", SEARCH, headers=headers, params={"q": "orders"})
    assert refused.status_code == 403
    assert "pubsub.topics.list" in refused.text
    await _bind(broker, OTHER, "roles/pubsub.viewer", member)
    assert await _search(broker, "orders", headers) == ([OTHER], ["MESSAGE", "TOPIC"])
    # Neither a full name nor an id finds more than a part of a name.
    [message_id] = orders["messageIds"]
    for text in (TOPIC, "topics/orders", message_id):
        assert (await _search(broker, text, headers))[0] == []


async def test_a_message_is_found_by_callers_who_may_read_the_messages_of_its_topic(
    broker: Guarded, orders: Json
) -> None:
    [message_id] = orders["messageIds"]
    member, headers = await _caller(broker, "roles/pubsub.viewer")
    assert (await _search(broker, message_id, headers))[0] == []
    await _bind(broker, TOPIC, "roles/pubsub.subscriber", member)
    assert (await _search(broker, message_id, headers))[0] == [f"{TOPIC}/messages/{message_id}"]


async def test_principals_are_found_by_callers_who_may_read_the_policies_that_name_them(
    broker: Guarded, orders: Json
) -> None:
    await _bind(broker, TOPIC, "roles/viewer", "user:orders@example.com")
    role = {"includedPermissions": ["pubsub.topics.getIamPolicy", "pubsub.snapshots.list"]}
    await broker.ok("POST", "projects/guarded/roles", {"roleId": "auditor", "role": role})
    _, headers = await _caller(broker, "projects/guarded/roles/auditor")
    assert await _search(broker, "orders@", headers) == ([TOPIC], ["MESSAGE", "SNAPSHOT", "POLICY"])


async def test_an_api_key_finds_the_topics_that_it_is_restricted_to(broker: Guarded, orders: Json) -> None:
    asked = {"roles": ["roles/pubsub.viewer"], "resources": [OTHER]}
    key = await broker.ok("POST", "projects/guarded/apiKeys", asked)
    headers = {"X-Goog-Api-Key": key["keyString"]}
    assert (await _search(broker, "orders", headers))[0] == [OTHER]
    another = await broker.call("GET", "projects/another:search", headers=headers, params={"q": "orders"})
    assert another.status_code == 403


async def test_who_shows_nothing_is_refused(broker: Guarded, orders: Json) -> None:
    await _bind(broker, "projects/guarded", "roles/viewer", "allUsers")
    refused = await broker.call("GET", SEARCH, headers={}, params={"q": "orders"})
    assert refused.status_code == 401
