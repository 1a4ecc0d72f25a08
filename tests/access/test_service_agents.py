"""What projects publish without a caller: on topics of others only while the owner lets their service agents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.principals.service_account import email_of
from broker.access.principals.service_agent import is_service_agent, service_agent
from broker.model.errors import InvalidArgument
from tests.fixtures.access import Guarded, guarded
from tests.fixtures.broker import Json, eventually, message

OTHER = "projects/other"
AGENT = "serviceAccount:service-other@gcp-sa-pubsub.iam.broker.internal"
TOPIC = "projects/guarded/topics/orders"
SCHEDULE = f"{OTHER}/schedules/every-hour"
SETTINGS: dict[str, Any] = {"min_delivery_attempts": 1, "dead_letter_interval_seconds": 0.05}


async def _author(broker: Guarded) -> tuple[Json, dict[str, Any]]:
    """An account of the other project, which may do everything there and publish on the owner's topic."""
    await broker.ok("PUT", TOPIC, {})
    account = await broker.ok("POST", f"{OTHER}/serviceAccounts", {"accountId": "their-author"})
    binding = {"role": "roles/owner", "members": [f"serviceAccount:{account['email']}"]}
    await broker.ok("POST", f"{OTHER}:setIamPolicy", {"policy": {"bindings": [binding]}})
    await _bind(broker, f"serviceAccount:{account['email']}")
    return account, {"headers": broker.bearer(await broker.key(account))}


async def _bind(broker: Guarded, *members: str) -> None:
    """Let these publish on the owner's topic, and nobody else."""
    bindings = [{"role": "roles/pubsub.publisher", "members": list(members)}] if members else []
    await broker.ok("POST", f"{TOPIC}:setIamPolicy", {"policy": {"bindings": bindings}})


async def _publishers(broker: Guarded) -> list[Json]:
    found: list[Json] = (await broker.ok("GET", f"{TOPIC}:publishers")).get("publishers", [])
    return found


async def _events(broker: Guarded) -> list[str]:
    """The types and subjects of the events of the other project since the last time."""
    await broker.broker.workers["events"].run_once()
    body = {"maxMessages": 100, "returnImmediately": True}
    answer = await broker.ok("POST", f"{OTHER}/subscriptions/event-sub:pull", body)
    received = answer.get("receivedMessages", [])
    if received:
        ids = {"ackIds": [one["ackId"] for one in received]}
        await broker.ok("POST", f"{OTHER}/subscriptions/event-sub:acknowledge", ids)
    attributes = [one["message"]["attributes"] for one in received]
    return [f"{each['ce-type']} {each['ce-subject']}" for each in attributes]


async def _watch_events(broker: Guarded) -> None:
    await broker.ok("PUT", f"{OTHER}/topics/events", {})
    await broker.ok("PUT", f"{OTHER}/subscriptions/event-sub", {"topic": f"{OTHER}/topics/events"})
    await broker.ok("PATCH", f"{OTHER}/settings", {"eventTopic": f"{OTHER}/topics/events"})


async def test_a_schedule_publishes_on_a_topic_of_another_project_while_its_owner_allows_that(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker.state")
    async with guarded(database_url) as broker:
        account, author = await _author(broker)
        await _watch_events(broker)
        body = {"topic": TOPIC, "message": message("a"), "schedule": "0 3 * * *"}
        await broker.ok("PUT", SCHEDULE, body, **author)
        refused = await broker.call("POST", f"{SCHEDULE}:run", {}, **author)
        assert (refused.status_code, "PERMISSION_DENIED" in refused.text, AGENT in refused.text) == (
            400,
            True,
            True,
        )
        assert await _events(broker) == [f"pubsub.schedule.refused {SCHEDULE}"]
        [denied] = await _publishers(broker)
        assert AGENT in denied.pop("reason")
        created_by = f"serviceAccount:{account['email']}"
        shown = {"name": SCHEDULE, "kind": "SCHEDULE", "serviceAgent": AGENT, "createdBy": created_by}
        assert denied == shown | {"state": "DENIED"}
        await _bind(broker, AGENT)
        assert (await broker.ok("POST", f"{SCHEDULE}:run", {}, **author))["messageId"]
        assert await _events(broker) == [f"pubsub.schedule.accepted {SCHEDULE}"]
        # The right is the project's, so it does not end with the account that made the schedule.
        await broker.ok("DELETE", account["name"])
        assert (await broker.ok("POST", f"{SCHEDULE}:run", {}))["messageId"]
        assert await _publishers(broker) == [shown | {"state": "ACTIVE"}]
        await broker.ok("POST", f"{SCHEDULE}:pause", {})
        assert await _publishers(broker) == [shown | {"state": "PAUSED"}]
        await _bind(broker)
        assert (await broker.call("POST", f"{SCHEDULE}:run", {})).status_code == 400
        assert (await broker.ok("GET", SCHEDULE))["lastOutcome"] == "REFUSED"
    begun = [record.getMessage() for record in caplog.records if "publishes nothing" in record.getMessage()]
    assert [line.startswith(f"{SCHEDULE} publishes nothing: PERMISSION_DENIED: ") for line in begun] == [True, True]


async def test_a_project_publishes_on_its_own_topics_without_a_role(database_url: str) -> None:
    async with guarded(database_url) as broker:
        await broker.ok("PUT", TOPIC, {})
        name = f"{broker.project}/schedules/every-hour"
        body = {"topic": TOPIC, "message": message("a"), "schedule": "0 3 * * *"}
        made = await broker.ok("PUT", name, body)
        assert (await broker.ok("POST", f"{name}:run", {}))["messageId"]
        policy = {"deadLetterTopic": TOPIC, "maxDeliveryAttempts": 5}
        subscription = f"{broker.project}/subscriptions/worker"
        await broker.ok("PUT", subscription, {"topic": TOPIC, "deadLetterPolicy": policy})
        await broker.ok("PATCH", f"{broker.project}/settings", {"eventTopic": TOPIC})
        assert await _publishers(broker) == [
            {"name": name, "kind": "SCHEDULE", "state": "ACTIVE", "createdBy": made["createdBy"]},
            {"name": f"{broker.project}/settings", "kind": "EVENTS", "state": "ACTIVE"},
            {"name": subscription, "kind": "DEAD_LETTER_POLICY", "state": "ACTIVE"},
        ]
        first = await broker.ok("GET", f"{TOPIC}:publishers?pageSize=2")
        rest = await broker.ok("GET", f"{TOPIC}:publishers?pageSize=2&pageToken={first['nextPageToken']}")
        assert [one["name"] for one in rest["publishers"]] == [subscription]
        assert (await broker.call("GET", f"{broker.project}/topics/none:publishers")).status_code == 404


async def test_dead_letters_go_to_a_topic_of_another_project_while_its_owner_allows_that(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "broker.state")
    async with guarded(database_url, **SETTINGS) as broker:
        _, author = await _author(broker)
        await _watch_events(broker)
        await broker.ok("PUT", "projects/guarded/subscriptions/dead", {"topic": TOPIC})
        await broker.ok("PUT", f"{OTHER}/topics/parcels", {}, **author)
        subscription = f"{OTHER}/subscriptions/worker"
        policy = {"deadLetterTopic": TOPIC, "maxDeliveryAttempts": 1}
        body = {"topic": f"{OTHER}/topics/parcels", "deadLetterPolicy": policy}
        await broker.ok("PUT", subscription, body, **author)
        await broker.ok("POST", f"{OTHER}/topics/parcels:publish", {"messages": [message("a")]}, **author)

        async def reject() -> bool:
            """Whether there was something to reject."""
            pulled = await broker.ok("POST", f"{subscription}:pull", {"maxMessages": 1, "returnImmediately": True})
            ids = [one["ackId"] for one in pulled.get("receivedMessages", [])]
            if ids:
                await broker.ok(
                    "POST", f"{subscription}:modifyAckDeadline", {"ackIds": ids, "ackDeadlineSeconds": 0}
                )
            return bool(ids)

        def is_reported() -> bool:
            return any(" wait: The service agent" in record.getMessage() for record in caplog.records)

        await eventually(reject)
        await eventually(is_reported)
        assert await _events(broker) == [f"pubsub.deadLetters.blocked {subscription}"]
        [denied] = await _publishers(broker)
        assert (denied["name"], denied["state"], denied["serviceAgent"]) == (subscription, "DENIED", AGENT)
        lags = (await broker.ok("GET", f"{OTHER}/lag?fresh=true"))["subscriptions"]
        [lag] = [each for each in lags if each["subscription"] == subscription]
        assert AGENT in " ".join(lag["warnings"])
        await _bind(broker, AGENT)

        async def is_forwarded() -> bool:
            position = await broker.ok("GET", "projects/guarded/subscriptions/dead/snapshot")
            return bool(position["undeliveredMessages"] == 1)

        await eventually(is_forwarded)
        assert "pubsub.deadLetters.forwarded" in " ".join(await _events(broker))
    lines = [record.getMessage() for record in caplog.records if "dead letters of" in record.getMessage()]
    waiting, again = lines
    begins = f"dead letters of {subscription} wait: The service agent of {OTHER} "
    assert (waiting.startswith(begins), AGENT in waiting) == (True, True)
    assert again.startswith(f"dead letters of {subscription} are forwarded again, after ")


async def test_a_copy_to_a_topic_of_another_project_ends_when_its_owner_no_longer_allows_it(
    database_url: str,
) -> None:
    async with guarded(database_url) as broker:
        account, author = await _author(broker)
        await broker.ok("PUT", f"{OTHER}/topics/source", {"messageRetentionDuration": "600s"}, **author)
        await broker.ok("POST", f"{OTHER}/topics/source:publish", {"messages": [message("a")] * 3}, **author)
        await _bind(broker, AGENT, f"serviceAccount:{account['email']}")
        body = {"targetTopic": TOPIC, "maxMessagesPerSecond": 0.5}
        name = (await broker.ok("POST", f"{OTHER}/topics/source:copy", body, **author))["name"]

        async def has_begun() -> bool:
            return bool((await broker.ok("GET", name))["metadata"]["done"] != "0")

        await eventually(has_begun)
        [copying] = await _publishers(broker)
        assert (copying["name"], copying["kind"], copying["state"]) == (name, "OPERATION", "ACTIVE")
        await _bind(broker)

        async def has_ended() -> bool:
            return bool((await broker.ok("GET", name)).get("done"))

        await eventually(has_ended)
        ended = await broker.ok("GET", name)
        assert (ended["error"]["code"], AGENT in ended["error"]["message"]) == (7, True)
        assert await _publishers(broker) == []


async def test_a_decision_about_a_service_agent_costs_no_query_until_access_changes(broker: Guarded) -> None:
    await _author(broker)
    await _bind(broker, AGENT)
    access = broker.broker.guard.access
    assert access is not None
    await access.agents.check_publisher(OTHER, TOPIC)
    decisions = access.authorizer._decisions
    [key] = [key for key in decisions if key[0].member == AGENT]
    assert decisions[key][0]
    assert decisions[key][1].holds
    await _bind(broker)
    assert not decisions[key][1].holds


async def test_nobody_else_is_a_service_agent(broker: Guarded) -> None:
    for project in ("projects/gcp-sa-pubsub", "projects/GCP-SA-PUBSUB"):
        refused = await broker.call("POST", f"{project}/serviceAccounts", {"accountId": "service-other"})
        assert (refused.status_code, "reserved" in refused.text) == (400, True), refused.text
    await broker.ok("PUT", TOPIC, {})
    await _bind(broker, AGENT.replace("service-other", "Service-Other"))
    [binding] = (await broker.ok("GET", f"{TOPIC}:getIamPolicy"))["bindings"]
    assert binding["members"] == [AGENT]
    unknown = AGENT.replace("service-other", "other")
    body = {"policy": {"bindings": [{"role": "roles/pubsub.publisher", "members": [unknown]}]}}
    assert (await broker.call("POST", f"{TOPIC}:setIamPolicy", body)).status_code == 400


_PROJECTS = st.from_regex(r"\A[A-Za-z0-9_.:~+%-]{1,63}\Z")


@given(_PROJECTS, _PROJECTS)
def test_no_two_projects_have_the_same_service_agent(one: str, other: str) -> None:
    first, second = (service_agent(f"projects/{project}").member.lower() for project in (one, other))
    assert (first == second) == (one == other)
    assert is_service_agent(first.removeprefix("serviceAccount:".lower()))


def test_the_service_agent_of_a_plain_project_has_its_id() -> None:
    assert service_agent(OTHER).member == AGENT
    assert service_agent("projects/example.com:Shop").member == AGENT.replace("other", "example_2ecom_3a_53hop")
    with pytest.raises(InvalidArgument):
        email_of("projects/gcp-sa-pubsub", "service-other")
