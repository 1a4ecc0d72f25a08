"""Previews of destructive calls, and the limits that callers set, over REST."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.core.backlog.seeking import backlog_loss, previews
from broker.core.backlog.seeking.previews import Effort
from tests.features.previews.previewed_calls import destroy
from tests.fixtures.broker import Rest, message

Json = dict[str, Any]


def losses(preview: Json) -> Json:
    return {name: value for name, value in preview["losses"].items() if value and not name.endswith("ytes")}


async def preview_of(rest: Rest, call: str, **asked: object) -> Json:
    answer = await destroy(rest, call, **asked, validateOnly=True)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    assert found["validateOnly"] is True
    return found


OF_BACKLOG: list[Callable[[Rest], str]] = [
    lambda rest: f"DELETE {rest.subscription()}",
    lambda rest: f"POST {rest.subscription()}:detach",
    lambda rest: f"POST {rest.subscription()}:purge",
]


@pytest.mark.parametrize("make_call", OF_BACKLOG, ids=["delete", "detach", "purge"])
async def test_a_preview_counts_what_a_subscription_has_and_changes_nothing(
    rest: Rest, make_call: Callable[[Rest], str]
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("acked", "out", "waits")
    [first, *_] = await rest.pull(max_messages=2)
    await rest.acknowledge([first])
    call = make_call(rest)
    preview = await preview_of(rest, call)
    assert (preview["count"], preview["unit"]) == (2, "message")
    assert (await preview_of(rest, call))["count"] == 2, "and it stays so"
    assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 2
    refused = await destroy(rest, call, expectedCount=3)
    assert (refused.status_code, refused.json()["error"]["status"]) == (409, "ABORTED")
    assert "count=2, expectedCount=3" in refused.json()["error"]["message"]
    assert (await destroy(rest, call, expectedCount=3, tolerancePercent=33)).status_code == 409
    assert (await preview_of(rest, call, expectedCount=2))["count"] == 2
    assert (await destroy(rest, call, expectedCount=3, tolerancePercent=34)).status_code == 200


@pytest.mark.parametrize("make_call", OF_BACKLOG[:2], ids=["delete", "detach"])
async def test_a_whole_is_not_removed_with_what_came_after_as_of(
    rest: Rest, make_call: Callable[[Rest], str]
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("there")
    call = make_call(rest)
    await asyncio.sleep(0.002)
    then = (await preview_of(rest, call))["asOf"]
    await asyncio.sleep(0.002)
    await rest.publish("later")
    refused = await destroy(rest, call, asOf=then)
    assert (refused.status_code, "after asOf" in refused.json()["error"]["message"]) == (409, True)
    await rest.acknowledge(await rest.pull(max_messages=2))
    assert (await destroy(rest, call, asOf=then, expectedCount=0)).status_code == 200


async def test_a_topic_is_previewed_with_what_refers_to_it(rest: Rest) -> None:
    await rest.ok("PUT", rest.topic(), {"messageRetentionDuration": "600s", "extensions": {"delay": True}})
    await rest.create_subscription()
    await rest.publish("one", "two")
    await rest.ok("PUT", f"{rest.project}/snapshots/snapshot", {"subscription": rest.subscription()})
    await rest.create_topic("other")
    policy = {"deadLetterTopic": rest.topic(), "maxDeliveryAttempts": 5}
    body = {"topic": rest.topic("other"), "deadLetterPolicy": policy}
    await rest.ok("PUT", rest.subscription("failing"), body)
    schedule = {"topic": rest.topic(), "interval": "3600s", "message": {"data": "eA=="}}
    await rest.ok("PUT", f"{rest.project}/schedules/beat", schedule)
    for call in (f"DELETE {rest.topic()}", f"POST {rest.topic()}:purge"):
        preview = await preview_of(rest, call)
        assert (preview["count"], losses(preview)) == (2, {"messages": 2})
        assert [(each["name"].rpartition("/")[2], each["kind"]) for each in preview["referredToBy"]] == [
            ("beat", "SCHEDULE"),
            ("snapshot", "SNAPSHOT"),
            ("failing", "DEAD_LETTER_POLICY"),
            ("sub", "SUBSCRIPTION"),
        ]
        assert preview["referenceCount"] == 4
        assert (await destroy(rest, call, expectedCount=1)).status_code == 409
        assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 2
    then = preview["asOf"]
    await asyncio.sleep(0.002)
    await rest.publish("three")
    assert (await destroy(rest, f"POST {rest.topic()}:purge", asOf=then)).status_code == 409
    assert (await destroy(rest, f"POST {rest.topic()}:purge", expectedCount=3)).status_code == 200
    assert await rest.pull() == []


async def test_messages_are_retracted_or_discarded_only_as_expected(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    ids = await rest.publish("one", "two", "three")
    for call in (f"POST {rest.topic()}:retract", f"POST {rest.subscription()}:discard"):
        preview = await preview_of(rest, call, messageIds=ids[:2])
        assert (preview["count"], losses(preview)["messages"]) == (2, 2)
        assert (await destroy(rest, call, messageIds=ids, expectedCount=2)).status_code == 409
        refused = await destroy(rest, call, messageIds=ids, asOf="2020-01-01T00:00:00Z")
        assert (refused.status_code, "after asOf" in refused.json()["error"]["message"]) == (409, True)
        assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 3
    assert (await destroy(rest, call, messageIds=ids[:1], expectedCount=1)).status_code == 200
    left = {"messageIds": ids, "expectedCount": 3, "asOf": (await preview_of(rest, call, messageIds=ids))["asOf"]}
    await asyncio.sleep(0.002)
    assert (await destroy(rest, f"POST {rest.topic()}:retract", **left)).status_code == 200
    assert await rest.pull() == []


@pytest.mark.parametrize("filter_text", ["", "attributes:a"])
async def test_what_is_gone_from_a_batch_is_not_counted(rest: Rest, filter_text: str) -> None:
    await rest.create_topic()
    await rest.create_subscription(filter=filter_text)
    ids = await rest.publish(*[message(each, attributes={"a": "b"}) for each in "abcde"])
    await rest.acknowledge((await rest.pull(max_messages=2))[:1])
    await rest.ok("POST", f"{rest.topic()}:retract", {"messageIds": ids[3:4]})
    preview = await preview_of(rest, f"DELETE {rest.subscription()}")
    assert (preview["count"], "estimated" in preview) == (3, False)
    assert preview["losses"]["bytes"] == 3 * (1 + len('{"a": "b"}'))
    assert (await destroy(rest, f"POST {rest.subscription()}:purge", expectedCount=3)).status_code == 200


@pytest.mark.own_broker
@pytest.mark.parametrize("piece", [1, 2, 3])
async def test_messages_are_compared_piece_by_piece(
    rest: Rest, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(previews, "_PIECE", piece)
    await rest.create_topic()
    await rest.create_subscription(filter="attributes:a")
    await rest.publish(*[message("text", attributes={"a" if number % 2 else "b": ""}) for number in range(8)])
    assert (await preview_of(rest, f"DELETE {rest.subscription()}", expectedCount=4))["count"] == 4


@pytest.mark.own_broker
async def test_a_count_that_would_take_too_long_is_an_estimate_that_nothing_can_be_expected_of(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    for name in ("FOR_COUNTS", "FOR_LIMITS"):
        monkeypatch.setattr(backlog_loss, name, Effort(messages=1, batches=1, is_exact=True))
    await rest.publish("one", "two")
    await rest.publish("three")
    preview = await preview_of(rest, f"DELETE {rest.subscription()}")
    assert (preview["count"], preview["estimated"]) == (3, True)
    refused = await destroy(rest, f"DELETE {rest.subscription()}", expectedCount=3)
    assert (refused.status_code, refused.json()["error"]["status"]) == (400, "FAILED_PRECONDITION")
    assert "3 messages is an estimate" in refused.text


async def test_a_seek_is_previewed_in_the_same_form(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retainAckedMessages=True)
    await rest.publish("acked", "waits")
    await rest.acknowledge(await rest.pull(max_messages=1))
    call = f"POST {rest.subscription()}:seek"
    preview = await preview_of(rest, call, time="2020-01-01T00:00:00Z")
    assert (preview["count"], losses(preview)) == (1, {"replayedMessages": 1})
    ahead = await preview_of(rest, call, time="2100-01-01T00:00:00Z")
    assert (ahead["count"], losses(ahead)) == (1, {"skippedMessages": 1})
    refused = await destroy(rest, call, time="2100-01-01T00:00:00Z", expectedCount=0, undoable=True)
    assert refused.status_code == 409
    assert (await rest.ok("GET", f"{rest.project}/snapshots")) == {}
    again = await destroy(rest, call, time="2020-01-01T00:00:00Z", expectedCount=1)
    assert (again.status_code, again.json()["replayedMessages"]) == (200, 1)


async def test_purges_leave_alone_what_came_after_as_of(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish({"data": "b2xk", "attributes": {"env": "test"}})
    call = f"POST {rest.subscription()}:purge"
    await asyncio.sleep(0.002)
    then = (await preview_of(rest, call))["asOf"]
    await asyncio.sleep(0.002)
    await rest.publish({"data": "bmV3", "attributes": {"env": "test"}})
    assert (await preview_of(rest, call))["count"] == 2
    asked = {"filter": 'attributes.env = "test"', "asOf": then}
    plan = await rest.ok("POST", call.split()[1], {**asked, "validateOnly": True})
    assert (plan["metadata"]["count"], plan["metadata"]["state"]) == (1, "VALIDATED")
    assert (await destroy(rest, call, **asked, expectedCount=2)).status_code == 409
    assert (await destroy(rest, call, asOf=then, expectedCount=1)).status_code == 200
    assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 1


async def test_resources_without_messages_are_previewed_with_what_refers_to_them(rest: Rest) -> None:
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=schema", {"type": "JSON", "definition": "{}"})
    await rest.ok(
        "PUT", rest.topic(), {"schemaSettings": {"schema": f"{rest.project}/schemas/schema", "encoding": "JSON"}}
    )
    await rest.create_subscription()
    snapshot, schedule = f"{rest.project}/snapshots/snapshot", f"{rest.project}/schedules/beat"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    await rest.ok("PUT", schedule, {"topic": rest.topic(), "interval": "3600s", "message": {"data": "e30="}})
    schema = f"DELETE {rest.project}/schemas/schema"
    preview = await preview_of(rest, schema)
    assert (preview["count"], preview["unit"]) == (1, "reference")
    assert preview["referredToBy"] == [{"name": rest.topic(), "kind": "TOPIC"}]
    for call in (schema, f"DELETE {snapshot}", f"DELETE {schedule}"):
        count = (await preview_of(rest, call))["count"]
        assert (await destroy(rest, call, expectedCount=count + 1)).status_code == 409
        assert (await destroy(rest, call, asOf="2020-01-01T00:00:00Z")).status_code == 409
        assert (await destroy(rest, call, expectedCount=count)).status_code == 200


@pytest.mark.own_broker(allow_reset=True)
async def test_a_project_is_reset_with_what_it_was_known_to_have(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    call = f"POST {rest.project}:reset"
    await asyncio.sleep(0.002)
    preview = await preview_of(rest, call)
    assert (preview["count"], preview["unit"]) == (2, "resource")
    assert losses(preview) == {"topics": 1, "subscriptions": 1}
    await asyncio.sleep(0.002)
    await rest.publish("later")
    then = preview["asOf"]
    assert (await destroy(rest, call, asOf=then)).status_code == 409
    assert (await destroy(rest, call, expectedCount=1)).status_code == 409
    assert len((await rest.ok("GET", f"{rest.project}/topics"))["topics"]) == 1
    assert (await destroy(rest, call, expectedCount=2)).json()["deleted"]["topics"] == 1


@pytest.mark.parametrize("spelling", ["validate_only", "validateOnly"])
async def test_either_spelling_asks_for_a_preview(rest: Rest, spelling: str) -> None:
    await rest.create_topic()
    assert (await rest.ok("DELETE", rest.topic(), params={spelling: "true"}))["validateOnly"] is True
    assert (await rest.ok("POST", f"{rest.topic()}:purge", {spelling: True}))["validateOnly"] is True


async def test_a_delete_with_the_fields_in_its_body_is_refused(rest: Rest) -> None:
    await rest.create_topic()
    code, why = await rest.error("DELETE", rest.topic(), {"validateOnly": True})
    assert (code, "validateOnly is a parameter of the query" in why) == ("INVALID_ARGUMENT", True)
    assert (await rest.ok("GET", rest.topic()))["name"] == rest.topic()


BAD: list[tuple[Json, str]] = [
    ({"expectedCount": -1}, "expectedCount must not be negative"),
    ({"expectedCount": 1, "tolerancePercent": 101}, "from 0 to 100"),
    ({"expectedCount": 1, "tolerancePercent": -1}, "from 0 to 100"),
    ({"tolerancePercent": 1}, "tolerancePercent needs expectedCount"),
    ({"asOf": "yesterday"}, "asOf"),
    ({"expectedCount": "some"}, "expectedCount"),
    ({"validateOnly": "maybe"}, "validateOnly"),
    ({"validateonly": True}, "validateonly"),
]


@pytest.mark.parametrize(("asked", "why"), BAD, ids=[why for _, why in BAD])
async def test_limits_that_cannot_be_are_refused_by_name_and_nothing_is_done(
    rest: Rest, asked: Json, why: str
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    [id_] = await rest.publish("there")
    calls = {
        f"DELETE {rest.subscription()}": {},
        f"DELETE {rest.topic()}": {},
        f"POST {rest.subscription()}:detach": {},
        f"POST {rest.subscription()}:purge": {},
        f"POST {rest.topic()}:purge": {},
        f"POST {rest.topic()}:retract": {"messageIds": [id_]},
        f"POST {rest.subscription()}:discard": {"messageIds": [id_]},
        f"POST {rest.subscription()}:seek": {"time": "2100-01-01T00:00:00Z"},
        f"POST {rest.project}:reset": {},
    }
    for call, body in calls.items():
        answer = await destroy(rest, call, **body, **asked)
        assert (answer.status_code, why in answer.text) == (400, True), (call, answer.text)
    assert (await rest.ok("GET", f"{rest.subscription()}/snapshot"))["undeliveredMessages"] == 1
