"""Findings and changes: dead letters of a project, push attempts, events and marks, the audit log, and the broker
itself.
"""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, text
from tests.fixtures.push_sink import PushSink


async def test_dead_letters_of_all_subscriptions_are_listed_and_grouped(rest: Rest) -> None:
    for topic in ("topic", "morgue"):
        await rest.create_topic(topic)
    for name in ("sub-a", "sub-b"):
        policy = {"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 5}
        await rest.create_subscription(name, deadLetterPolicy=policy)
    await rest.create_subscription("reader", "morgue")
    await rest.publish("1", "2")
    for name in ("sub-a", "sub-b"):
        ack_ids = [each["ackId"] for each in await rest.pull(name, 2)]
        await rest.ok("POST", f"{rest.subscription(name)}:reject", {"ackIds": ack_ids})
    found: list[Json] = []

    async def are_there() -> bool:
        found[:] = (await rest.ok("GET", f"{rest.project}/deadLetters"))["deadLetters"]
        return len(found) == 4

    await eventually(are_there)
    both = {rest.subscription("sub-a"), rest.subscription("sub-b")}
    assert {each["sourceSubscription"] for each in found} == both
    answer = await rest.ok("GET", f"{rest.project}/deadLetters", params={"groupBy": "sourceSubscription"})
    counts = {group["key"]["sourceSubscription"]: group["count"] for group in answer["groups"]}
    assert counts == dict.fromkeys(both, 2)
    [group] = (await rest.ok("GET", f"{rest.project}/deadLetters?groupBy=fingerprint"))["groups"]
    assert (group["count"], group["key"]["fingerprint"]) == (4, found[0]["fingerprint"])
    where = {"filter": f'sourceSubscription="{rest.subscription("sub-a")}"', "pageSize": 1}
    page = await rest.ok("GET", f"{rest.project}/deadLetters", params=where)
    assert (len(page["deadLetters"]), "nextPageToken" in page) == (1, True)
    for path in (rest.project, rest.subscription("sub-a")):
        for preview, shown in (("0", {""}), ("3", {"1", "2"})):
            asked = await rest.ok("GET", f"{path}/deadLetters", params={"previewBytes": preview})
            assert {text(each) for each in asked["deadLetters"]} == shown
            assert {each["dataSize"] for each in asked["deadLetters"]} == {1}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"groupBy": "size"}, "size"),
        ({"orderBy": "count desc"}, "orderBy needs groupBy"),
        ({"filter": "size=1"}, "size cannot be compared"),
        ({"pageToken": "x"}, "page_token=x"),
    ],
)
async def test_a_list_of_dead_letters_that_cannot_be_is_refused(rest: Rest, parameters: Any, said: str) -> None:
    code, message = await rest.error("GET", f"{rest.project}/deadLetters", params=parameters)
    assert (code, said in message) == ("INVALID_ARGUMENT", True)


async def test_requests_of_pushes_are_counted_by_their_status(rest: Rest, push_sink: PushSink) -> None:
    await rest.create_topic()
    await rest.create_subscription(pushConfig={"pushEndpoint": f"{push_sink.url}/status/204"})
    await rest.publish("1", "2")
    path = f"{rest.subscription()}:pushAttempts"

    async def are_counted() -> bool:
        attempts = (await rest.ok("GET", f"{path}?outcome=DELIVERED")).get("pushAttempts", [])
        return sum(int(each["requests"]) for each in attempts) == 2 and {each["status"] for each in attempts} == {
            "204"
        }

    await eventually(are_counted)
    assert await rest.ok("GET", f"{path}?outcome=FAILED") == {}
    assert await rest.ok("GET", f"{path}?since=2999-01-01T00:00:00Z") == {}
    for query in ("outcome=LATE", "since=yesterday"):
        code, said = await rest.error("GET", f"{path}?{query}")
        assert (code, query.partition("=")[0] in said) == ("INVALID_ARGUMENT", True)


async def test_the_changes_of_a_breaker_are_part_of_the_push_status(rest: Rest, push_sink: PushSink) -> None:
    await rest.create_topic()
    breaker = {"failureThreshold": 3, "openDuration": "600s"}
    await rest.create_subscription(
        pushConfig={"pushEndpoint": f"{push_sink.url}/status/503"}, extensions={"push": {"circuitBreaker": breaker}}
    )
    assert "history" not in (await rest.ok("GET", f"{rest.subscription()}:pushStatus"))["circuitBreaker"]
    await rest.publish("1", "2", "3")

    async def history() -> list[Json]:
        status = await rest.ok("GET", f"{rest.subscription()}:pushStatus")
        found: list[Json] = status["circuitBreaker"].get("history", [])
        return found

    [opened] = await eventually(history)
    assert (opened["state"], opened["status"], opened["consecutiveFailures"]) == ("OPEN", 503, 3)


async def test_marks_are_listed_the_newest_first(rest: Rest) -> None:
    made = [
        await rest.ok("POST", f"{rest.project}/marks", {"text": f"Release {number}", "labels": {"n": str(number)}})
        for number in range(3)
    ]
    assert (await rest.ok("GET", f"{rest.project}/events"))["events"] == made[::-1]
    assert (await rest.ok("GET", f"{rest.project}/events?orderBy=time"))["events"] == made
    one = await rest.ok("GET", f"{rest.project}/events", params={"filter": 'type=mark AND label="n=1"'})
    assert one["events"] == [made[1]]
    assert await rest.ok("GET", f"{rest.project}/events", params={"filter": "type!=mark"}) == {}
    assert (await rest.error("POST", f"{rest.project}/marks", {}))[0] == "INVALID_ARGUMENT"
    assert (await rest.error("GET", f"{rest.project}/events?orderBy=text"))[0] == "INVALID_ARGUMENT"


async def test_the_audit_log_is_filtered_by_the_beginning_of_a_name(rest: Rest) -> None:
    where = {"filter": f'protoPayload.resourceName="{rest.project}/topics/*"'}
    answer = await rest.ok("GET", f"{rest.project}/auditLogs", params=where)
    names = [entry["protoPayload"]["resourceName"] for entry in answer.get("entries", [])]
    assert all(name.startswith(f"{rest.project}/topics/") for name in names)
    code, said = await rest.error("GET", f"{rest.project}/auditLogs", params={"filter": "size=1"})
    assert (code, "size" in said) == ("INVALID_ARGUMENT", True)


async def test_the_broker_says_what_runs_on_which_database_with_which_settings(rest: Rest) -> None:
    processes = (await rest.ok("GET", "broker/processes"))["processes"]
    assert processes
    database = await rest.ok("GET", "broker/database")
    assert database
    findings = await rest.ok("GET", "broker/findings")
    assert all(finding["nextStep"] for finding in findings.get("findings", []) if "nextStep" in finding)
    settings = (await rest.ok("GET", "broker/settings"))["settings"]
    assert len(settings) > 10
    assert (await rest.call("GET", "broker/none")).status_code == 404
