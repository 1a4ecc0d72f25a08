"""Copies over REST: what a topic retains is published anew on another one, as it is (G2)."""

from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message, text

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'


pytestmark = pytest.mark.own_broker(shards_per_topic=3)


@pytest.fixture
async def rest(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> Rest:
    """Seven messages a step.  The topic `topic` is retained, the topic `other` has a subscription `sub`."""
    monkeypatch.setattr("broker.features.import_export.copy_operation.step_size", lambda _: 7)
    await rest.create_topic(messageRetentionDuration="600s")
    await rest.create_topic("other")
    await rest.create_subscription(topic="other", enableMessageOrdering=True)
    return rest


async def _copy(rest: Rest, target: str = "other", **body: object) -> Json:
    """Until it has ended."""
    asked = {"targetTopic": rest.topic(target), **body}
    started = await rest.ok("POST", f"{rest.topic()}:copy", asked)
    return await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})


def _plain(received: Json) -> Any:
    one = received["message"]
    return text(received), one.get("attributes", {}), one.get("orderingKey", "")


async def test_copies_are_new_messages_that_are_as_they_were_in_the_order_of_keys(rest: Rest) -> None:
    ids = []
    for number in range(5):
        for key in "abcd":
            ids += await rest.publish(message(f"{key}{number}", {"n": str(number)}, orderingKey=key))
    ids += await rest.publish("plain", message(attributes={"only": "attributes"}))
    ended = await _copy(rest)
    assert ended["response"] == {"@type": "type.googleapis.com/broker.v1.CopyResponse", "copied": "22"}
    assert (ended["metadata"]["done"], ended["metadata"]["total"]) == ("22", "22")
    assert ended["metadata"]["targetTopic"] == rest.topic("other")
    received = await rest.drain()
    assert not {each["message"]["messageId"] for each in received} & set(ids)
    copied = [_plain(each) for each in received]
    for key in "abcd":
        of_key = [each for each in copied if each[2] == key]
        assert of_key == [(f"{key}{number}", {"n": str(number)}, key) for number in range(5)]
    others = [each for each in copied if not each[2]]
    assert others == [("plain", {}, ""), ("", {"only": "attributes"}, "")]
    metrics = (await rest.client.get("/metrics")).text
    assert 'pubsub_topic_copied_messages_total{project="p",topic="other"} 22' in metrics


async def test_a_filter_and_a_time_choose_and_a_topic_is_copied_onto_itself(rest: Rest) -> None:
    await rest.create_subscription("own")
    await rest.publish(*(message(f"m{n}", {"n": str(n % 2)}) for n in range(20)))
    [first] = await rest.pull("own", 1)
    since = first["message"]["publishTime"]
    [last] = await rest.publish("last")
    found = (await rest.ok("GET", f"{rest.topic()}/messages", params={"pageSize": 1}))["messages"]
    assert found[0]["messageId"] == last
    until = found[0]["publishTime"]
    chosen = {"filter": 'attributes.n = "1"', "startTime": since, "endTime": until}
    assert (await _copy(rest, **chosen))["response"]["copied"] == "10"
    assert [text(each) for each in await rest.drain()] == [f"m{n}" for n in range(1, 20, 2)]
    assert (await _copy(rest, startTime=until))["response"]["copied"] == "1"
    await rest.drain("own")
    assert (await _copy(rest, "topic"))["response"]["copied"] == "21"
    assert len(await rest.drain("own")) == 21


async def test_nothing_is_copied_by_a_validation(rest: Rest) -> None:
    await rest.publish(*(f"m{n}" for n in range(9)))
    body = {"targetTopic": rest.topic("other"), "validateOnly": True}
    plan = await rest.ok("POST", f"{rest.topic()}:copy", body)
    assert (plan["done"], plan["response"]["chosen"], plan["metadata"]["state"]) == (True, "9", "VALIDATED")
    assert "name" not in plan
    assert await rest.ok("GET", f"{rest.project}/operations") == {}
    assert await rest.pull() == []


async def test_a_schema_of_the_target_refuses_what_is_not_like_it_and_describes_the_rest(rest: Rest) -> None:
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=numbers", {"type": "AVRO", "definition": AVRO})
    settings = {"schema": f"{rest.project}/schemas/numbers", "encoding": "JSON"}
    await rest.create_topic("checked", schemaSettings=settings)
    await rest.create_subscription("checked-sub", "checked")
    ids = await rest.publish('{"n": 1}', "no json", message('{"n": 2}', {"googclient_traceparent": "x"}))
    ended = await _copy(rest, "checked")
    assert ended["metadata"]["counts"] == {"copied": "2", "refused": "1"}
    assert ended["metadata"]["skipped"] == [{"messageId": ids[1], "reason": "refused"}]
    one, two = (each["message"]["attributes"] for each in await rest.drain("checked-sub"))
    assert (one["googclient_schemaname"], two["googclient_traceparent"]) == (settings["schema"], "x")
    await rest.create_subscription("checked-again", "checked")
    started = {"targetTopic": rest.topic("checked")}
    again = await rest.ok("POST", f"{rest.topic('checked')}:copy", started)  # from a schema to a schema
    assert (await rest.ok("POST", f"{again['name']}:wait", {}))["response"]["copied"] == "2"
    assert [each["message"]["attributes"] for each in await rest.drain("checked-again")] == [one, two]


async def test_what_is_frozen_meanwhile_is_waited_for_and_what_is_deleted_ends_it(rest: Rest) -> None:
    await rest.publish(*(f"m{n}" for n in range(20)))
    slow = {"targetTopic": rest.topic("other"), "maxMessagesPerSecond": 20}
    started = await rest.ok("POST", f"{rest.topic()}:copy", slow)
    await rest.ok("POST", f"{rest.topic('other')}:freeze", {"reason": "We move."})
    before = await rest.ok("GET", started["name"])
    await rest.ok("POST", f"{rest.topic('other')}:unfreeze")
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert (before["done"], ended["response"]["copied"]) == (False, "20")
    assert sorted(text(each) for each in await rest.drain()) == sorted(f"m{n}" for n in range(20))
    started = await rest.ok("POST", f"{rest.topic()}:copy", slow | {"maxMessagesPerSecond": 0.01})

    async def has_begun() -> bool:
        return bool((await rest.ok("GET", started["name"]))["metadata"]["done"] != "0")

    await eventually(has_begun)
    await rest.ok("POST", f"{started['name']}:cancel", {})
    started = await rest.ok("POST", f"{rest.topic()}:copy", slow)
    await rest.ok("DELETE", rest.topic("other"))
    await rest.create_topic("other")
    ended = await rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
    assert ended["error"]["code"] == 5
    assert "another has its name" in ended["error"]["message"] or "not found" in ended["error"]["message"]


async def test_what_is_purged_is_not_copied_any_more(rest: Rest) -> None:
    await rest.publish(*(f"m{n}" for n in range(5)))
    slow = {"targetTopic": rest.topic("other"), "maxMessagesPerSecond": 0.01}
    started = await rest.ok("POST", f"{rest.topic()}:copy", slow)
    await rest.ok("POST", f"{rest.topic()}:purge")
    await rest.ok("POST", f"{started['name']}:cancel", {})
    ended = await _copy(rest)
    assert (ended["metadata"]["total"], ended["metadata"]["done"]) == ("0", "0")


async def test_what_cannot_be_meant_is_refused(rest: Rest) -> None:
    await rest.create_topic("lean", messageTransforms=[{"fields": {"remove": ["body.a"]}}])
    await rest.create_topic("iced")
    await rest.ok("POST", f"{rest.topic('iced')}:freeze", {"reason": "We move."})
    cases: list[tuple[Json, str, str]] = [
        ({"filter": "attributes.n ="}, "INVALID_ARGUMENT", "filter"),
        ({"maxMessagesPerSecond": 0}, "INVALID_ARGUMENT", "maxMessagesPerSecond=0"),
        ({"startTime": "yesterday"}, "INVALID_ARGUMENT", "startTime"),
        ({"startTime": "2026-01-02T00:00:00Z", "endTime": "2026-01-01T00:00:00Z"}, "INVALID_ARGUMENT", "startTime"),
        ({"targetTopic": ""}, "INVALID_ARGUMENT", "targetTopic"),
        ({"targetTopic": "other"}, "INVALID_ARGUMENT", "other"),
        ({"targetTopic": "projects/p/topics/none"}, "NOT_FOUND", "none"),
        ({"targetTopic": "projects/p/topics/lean"}, "FAILED_PRECONDITION", "has transforms"),
        ({"targetTopic": "projects/p/topics/iced"}, "FAILED_PRECONDITION", "We move"),
    ]
    for body, code, said in cases:
        asked = {"targetTopic": rest.topic("other")} | body
        refused, why = await rest.error("POST", f"{rest.topic()}:copy", asked)
        assert (refused, said in why) == (code, True), why
    assert (await rest.error("POST", f"{rest.topic('none')}:copy", {"targetTopic": rest.topic()}))[0] == "NOT_FOUND"
