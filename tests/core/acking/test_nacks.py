"""Nack with a delay of its own (A4) and reject (A5): extensions, over REST."""

from typing import Any

import pytest

from tests.fixtures.broker import Rest, eventually, message, text


async def nack(rest: Rest, received: list[dict[str, Any]], **fields: Any) -> None:
    body = {"ackIds": [m["ackId"] for m in received], **fields}
    assert await rest.ok("POST", f"{rest.subscription()}:nack", body) == {}


async def test_a_nack_may_carry_its_own_delay(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"})
    await rest.publish("soon", "late", "at once")
    by_text = {text(m): m for m in await rest.pull()}
    await nack(rest, [by_text["late"]], delay="3600s")
    await nack(rest, [by_text["at once"]], delay="0s")
    assert [text(m) for m in await rest.pull()] == ["at once"]
    await nack(rest, [by_text["soon"]], delay="0.2s")
    assert [text(m) for m in await rest.pull(wait=True)] == ["soon"]


async def test_a_nack_without_a_delay_is_a_nack(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    await nack(rest, await rest.pull())
    assert [text(m) for m in await rest.pull()] == ["a"]


@pytest.mark.parametrize("delay", ["-1s", "86401s", "1", "", 5])
async def test_a_delay_out_of_bounds_is_refused(rest: Rest, delay: Any) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    [received] = await rest.pull()
    body = {"ackIds": [received["ackId"]], "delay": delay}
    code, complaint = await rest.error("POST", f"{rest.subscription()}:nack", body)
    assert (code, "delay" in complaint) == ("INVALID_ARGUMENT", True)
    assert await rest.pull() == []


async def reject(rest: Rest, received: list[dict[str, Any]]) -> None:
    body = {"ackIds": [m["ackId"] for m in received]}
    assert await rest.ok("POST", f"{rest.subscription()}:reject", body) == {}


async def with_dead_letter_topic(rest: Rest, **fields: Any) -> None:
    await rest.create_topic()
    await rest.create_topic("dead")
    await rest.create_subscription("letters", "dead")
    await rest.create_subscription(deadLetterPolicy={"deadLetterTopic": rest.topic("dead")}, **fields)


async def test_a_rejected_message_goes_to_the_dead_letter_topic_at_its_first_attempt(rest: Rest) -> None:
    await with_dead_letter_topic(rest)
    await rest.publish("bad", "good")
    by_text = {text(m): m for m in await rest.pull()}
    await reject(rest, [by_text["bad"]])
    [dead_letter] = await eventually(lambda: rest.pull("letters"))
    assert text(dead_letter) == "bad"
    assert dead_letter["message"]["attributes"]["CloudPubSubDeadLetterSourceDeliveryCount"] == "1"
    assert dead_letter["message"]["attributes"]["broker-dead-letter-reason"] == "reject"
    await rest.acknowledge([by_text["good"]])
    assert await rest.pull() == []


async def test_rejecting_the_first_message_of_a_key_lets_the_next_go_on(rest: Rest) -> None:
    await with_dead_letter_topic(rest, enableMessageOrdering=True)
    await rest.publish(message("k1", orderingKey="k"), message("k2", orderingKey="k"))
    k1, k2 = await rest.pull()
    code, complaint = await rest.error("POST", f"{rest.subscription()}:reject", {"ackIds": [k2["ackId"]]})
    assert (code, k2["ackId"] in complaint) == ("FAILED_PRECONDITION", True)
    await reject(rest, [k1])
    assert [text(m) for m in await eventually(rest.pull)] == ["k2"]
    assert [text(m) for m in await eventually(lambda: rest.pull("letters"))] == ["k1"]


async def test_nothing_can_be_rejected_without_a_dead_letter_topic(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.publish("a")
    [received] = await rest.pull()
    body = {"ackIds": [received["ackId"]]}
    assert (await rest.error("POST", f"{rest.subscription()}:reject", body))[0] == "FAILED_PRECONDITION"


async def test_nor_once_the_dead_letter_topic_is_deleted(rest: Rest) -> None:
    await with_dead_letter_topic(rest)
    await rest.publish("a", "b")
    first, second = await rest.pull()
    await reject(rest, [first])
    await rest.ok("DELETE", rest.topic("dead"))
    body = {"ackIds": [second["ackId"]]}
    assert (await rest.error("POST", f"{rest.subscription()}:reject", body))[0] == "FAILED_PRECONDITION"


async def test_a_message_that_is_not_out_any_more_cannot_be_rejected(rest: Rest) -> None:
    await with_dead_letter_topic(rest)
    await rest.publish("a")
    received = await rest.pull()
    await rest.acknowledge(received)
    body = {"ackIds": [received[0]["ackId"]]}
    assert (await rest.error("POST", f"{rest.subscription()}:reject", body))[0] == "FAILED_PRECONDITION"


async def test_one_message_of_a_key_at_a_time(rest: Rest) -> None:
    await rest.create_topic()
    one = {"onePerOrderingKey": True}
    created = await rest.create_subscription(enableMessageOrdering=True, extensions=one)
    assert created["extensions"] == one
    await rest.publish(message("k1", orderingKey="k"), message("k2", orderingKey="k"))
    k1 = await rest.pull()
    assert [text(m) for m in k1] == ["k1"]
    update = {"subscription": {"extensions": {}}, "updateMask": "extensions"}
    assert "extensions" not in await rest.ok("PATCH", rest.subscription(), update)
