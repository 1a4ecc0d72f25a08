"""Retracting messages, and publishing in their place, over REST; extensions (J6)."""

import asyncio
from typing import Any

import pytest

from tests.features.delayed.test_delay import delayed, waiting
from tests.fixtures.broker import Json, Rest, eventually, message, text

pytestmark = pytest.mark.own_broker(allow_reset=True, min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


async def _retract(rest: Rest, *ids: str, topic: str = "topic") -> Json:
    return await rest.ok("POST", f"{rest.topic(topic)}:retract", {"messageIds": list(ids)})


async def _replace(rest: Rest, id_: str, new: Any, topic: str = "topic") -> Json:
    body = {"messageId": id_, "message": message(new) if isinstance(new, str) else new}
    return await rest.ok("POST", f"{rest.topic(topic)}:replace", body)


def _outcomes(answer: Json) -> list[str]:
    return [each["outcome"] for each in answer["results"]]


async def test_what_is_retracted_is_not_delivered_and_how_it_stood_is_told(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("quiet")
    ids = await rest.publish(*"abcd")
    [a, b] = await rest.pull("sub", 2)
    await rest.acknowledge([a])
    answer = await _retract(rest, *ids[:3], ids[0], "1000000000099999", "9223000000000000001")
    assert _outcomes(answer) == ["retracted"] * 3 + ["unknown"] * 2
    assert answer["counts"] == {"retracted": "3", "unknown": "2"}
    quiet, sub = answer["subscriptions"]
    assert quiet == {"subscription": rest.subscription("quiet"), "neverHandedOut": ids[:3]}
    assert sub == {
        "subscription": rest.subscription(),
        "settled": [ids[0]],
        "outstanding": [ids[1]],
        "neverHandedOut": [ids[2]],
    }
    assert [text(each) for each in await rest.drain("quiet")] == ["d"]
    assert [text(each) for each in await rest.pull("sub", 10)] == ["d"]
    await rest.ok(
        "POST", f"{rest.subscription()}:modifyAckDeadline", {"ackIds": [b["ackId"]], "ackDeadlineSeconds": 0}
    )
    assert await rest.pull("sub", 10) == []
    again = await _retract(rest, *ids[:3])
    assert _outcomes(again) == ["alreadyRetracted"] * 3
    assert again["subscriptions"] == answer["subscriptions"]


async def test_a_message_is_replaced_once_however_often_it_is_asked(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(enableMessageOrdering=True)
    [old] = await rest.publish(message("old", orderingKey="k"))
    new = message("new", {"a": "b"}, orderingKey="k")
    answer = await _replace(rest, old, new)
    assert answer["outcome"] == "retracted"
    assert answer["subscriptions"] == [{"subscription": rest.subscription(), "neverHandedOut": [old]}]
    again = await _replace(rest, old, new)
    assert (again["outcome"], again["replacementId"]) == ("alreadyRetracted", answer["replacementId"])
    received = await rest.drain()
    assert [(each["message"]["messageId"], text(each)) for each in received] == [(answer["replacementId"], "new")]


async def test_what_cannot_be_replaced_publishes_nothing(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    [id_] = await rest.publish("a")
    await _retract(rest, id_)
    where = f"{rest.topic()}:replace"
    for body, code in [
        ({"messageId": id_, "message": message("x")}, "FAILED_PRECONDITION"),
        ({"messageId": str(int(id_) + 5), "message": message("x")}, "NOT_FOUND"),
        ({"messageId": "9000000000000001", "message": message("x")}, "NOT_FOUND"),
        ({"messageId": id_, "message": {}}, "INVALID_ARGUMENT"),
        ({"messageId": id_}, "INVALID_ARGUMENT"),
        ({"messageId": "7", "message": message("x")}, "INVALID_ARGUMENT"),
        ({"message": message("x")}, "INVALID_ARGUMENT"),
    ]:
        answered, why = await rest.error("POST", where, body)
        assert (answered, "messageIds" in why) == (code, False), why
    assert await rest.pull() == []


async def test_a_frozen_topic_retracts_and_replaces_nothing(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    one, other = await rest.publish(*"ab")
    await rest.ok("POST", f"{rest.topic()}:freeze", {})
    body = {"messageId": one, "message": message("x")}
    assert (await rest.error("POST", f"{rest.topic()}:replace", body))[0] == "FAILED_PRECONDITION"
    assert _outcomes(await _retract(rest, other)) == ["retracted"]
    assert [text(each) for each in await rest.drain()] == ["a"]


async def test_what_is_still_to_come_never_comes(rest: Rest) -> None:
    await rest.create_topic(extensions={"delay": True})
    await rest.create_subscription()
    one, other, soon = await rest.publish(delayed("one"), delayed("other"), delayed("soon", "0.1s"))
    assert _outcomes(await _retract(rest, one)) == ["retracted"]
    assert _outcomes(await _retract(rest, one)) == ["alreadyRetracted"]
    replaced = await _replace(rest, other, delayed("in its place", "0.2s"))
    assert replaced["outcome"] == "retracted"
    [received] = [each for each in await eventually(lambda: _all(rest, 2)) if text(each) != "soon"]
    assert received["message"]["messageId"] == replaced["replacementId"]
    assert await waiting(rest) == []
    answer = await _retract(rest, soon)
    assert answer["subscriptions"] == [{"subscription": rest.subscription(), "outstanding": [soon]}]


async def _all(rest: Rest, count: int) -> list[Json]:
    received: list[Json] = []
    while len(received) < count:
        received += await rest.pull()
    return received


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "from 1 to 1,000"),
        (["1000000000000001"] * 1001, "1001"),
        (["1000000000000001", "x"], "messageIds[1]"),
        (["0"], "messageIds[0]"),
    ],
)
async def test_bad_ids_are_refused(rest: Rest, ids: list[str], said: str) -> None:
    await rest.create_topic()
    answered, why = await rest.error("POST", f"{rest.topic()}:retract", {"messageIds": ids})
    assert (answered, said in why) == ("INVALID_ARGUMENT", True), why


async def test_messages_of_another_topic_are_refused_by_name_and_nothing_is_retracted(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("other")
    await rest.create_subscription()
    [id_] = await rest.publish("a")
    [foreign] = await rest.publish("b", topic="other")
    answered, why = await rest.error("POST", f"{rest.topic()}:retract", {"messageIds": [id_, foreign]})
    assert answered == "INVALID_ARGUMENT"
    assert rest.topic("other") in why
    assert "messageIds[1]" in why
    assert [text(each) for each in await rest.drain()] == ["a"]
    assert (await rest.error("POST", f"{rest.topic('none')}:retract", {"messageIds": [id_]}))[0] == "NOT_FOUND"


async def test_a_retraction_wakes_who_waits_for_the_rest_of_a_key(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(
        enableMessageOrdering=True, retryPolicy={"minimumBackoff": "60s", "maximumBackoff": "60s"}
    )
    first, _ = await rest.publish(message("a", orderingKey="k"), message("b", orderingKey="k"))
    [received] = await rest.pull("sub", 1)
    body = {"ackIds": [received["ackId"]], "ackDeadlineSeconds": 0}
    await rest.ok("POST", f"{rest.subscription()}:modifyAckDeadline", body)
    waiting_pull = asyncio.create_task(rest.pull("sub", 1, wait=True))
    await asyncio.sleep(0)
    await _retract(rest, first)
    assert [text(each) for each in await waiting_pull] == ["b"]


async def test_where_repeats_are_not_stored_a_replacement_is_and_a_retracted_message_has_its_id(rest: Rest) -> None:
    await rest.create_topic(extensions={"deduplication": {"window": "600s"}})
    await rest.create_subscription()
    first = message("a", {"broker-dedup-id": "1"})
    [id_] = await rest.publish(first)
    replaced = await _replace(rest, id_, first)
    assert await rest.publish(first) == [id_]
    received = await rest.drain()
    assert [each["message"]["messageId"] for each in received] == [replaced["replacementId"]]
