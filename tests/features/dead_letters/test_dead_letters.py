"""Dead-letter policies over REST (A5)."""

from collections.abc import Callable

import httpx
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, text


async def _subscription(rest: Rest, **policy: object) -> None:
    await rest.create_topic()
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    await rest.create_subscription(deadLetterPolicy={"deadLetterTopic": rest.topic("dead"), **policy})


async def _fail_five_times(rest: Rest) -> list[int]:
    attempts = []
    for _ in range(5):
        received = await rest.pull(wait=True)
        attempts += [m["deliveryAttempt"] for m in received]
        await rest.modify_ack_deadline(received, 0)
    return attempts


async def test_a_message_that_fails_five_times_arrives_on_the_dead_letter_topic(rest: Rest) -> None:
    await _subscription(rest)
    [message_id] = await rest.publish("poison")
    assert await _fail_five_times(rest) == [1, 2, 3, 4, 5]
    [dead_letter] = await rest.pull("dead-sub", wait=True)
    assert text(dead_letter) == "poison"
    attributes = dead_letter["message"]["attributes"]
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert "projects/" + attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == rest.project
    assert (attributes["broker-source-message-id"], attributes["broker-dead-letter-reason"]) == (message_id, "nack")
    assert await rest.pull() == []


async def test_a_policy_is_checked_given_back_and_removed(rest: Rest) -> None:
    await _subscription(rest, maxDeliveryAttempts=7)
    got = await rest.ok("GET", rest.subscription())
    assert got["deadLetterPolicy"] == {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 7}
    for attempts in (4, 101):
        wrong = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": attempts}
        code, complaint = await rest.error(
            "PUT", rest.subscription("other"), {"topic": rest.topic(), "deadLetterPolicy": wrong}
        )
        assert (code, str(attempts) in complaint) == ("INVALID_ARGUMENT", True)
    missing = {"topic": rest.topic(), "deadLetterPolicy": {"deadLetterTopic": rest.topic("missing")}}
    assert (await rest.error("PUT", rest.subscription("other"), missing))[0] == "NOT_FOUND"
    removed = {"subscription": {}, "updateMask": "deadLetterPolicy"}
    assert "deadLetterPolicy" not in await rest.ok("PATCH", rest.subscription(), removed)


async def test_messages_are_retried_while_the_dead_letter_topic_is_gone(rest: Rest) -> None:
    await _subscription(rest)
    await rest.publish("poison")
    await rest.ok("DELETE", rest.topic("dead"))
    await _fail_five_times(rest)
    [again] = await rest.pull(wait=True)
    assert again["deliveryAttempt"] == 6


@pytest.mark.parametrize("attempts", [1, 4])
async def test_fewer_than_five_attempts_are_refused_in_the_service_s_words(rest: Rest, attempts: int) -> None:
    await rest.create_topic()
    policy = {"deadLetterTopic": rest.topic(), "maxDeliveryAttempts": attempts}
    body = {"topic": rest.topic(), "deadLetterPolicy": policy}
    assert await rest.error("PUT", rest.subscription(), body) == (
        "INVALID_ARGUMENT",
        f"The value for max_delivery_attempts is too small. You passed {attempts} in the request, but the minimum "
        "value is 5.",
    )


async def test_fewer_attempts_can_be_allowed_and_one_failure_is_then_enough(
    start_broker: Callable[..., BrokerProcess], database_url: str, project: str
) -> None:
    allowing = start_broker("--database-url", database_url, "--port", "0", "--min-delivery-attempts", "1")
    async with httpx.AsyncClient(base_url=allowing.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, project)
        await _subscription(rest, maxDeliveryAttempts=1)
        await rest.publish("poison")
        received = await rest.pull(wait=True)
        assert [m["deliveryAttempt"] for m in received] == [1]
        await rest.modify_ack_deadline(received, 0)
        assert [text(m) for m in await rest.pull("dead-sub", wait=True)] == ["poison"]
        assert await rest.pull() == []
    allowing.stop()
    strict = start_broker("--database-url", database_url, "--port", "0")
    async with httpx.AsyncClient(base_url=strict.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, project)
        labelled = {"subscription": {"labels": {"a": "b"}}, "updateMask": "labels"}
        policy = (await rest.ok("PATCH", rest.subscription(), labelled))["deadLetterPolicy"]
        assert policy["maxDeliveryAttempts"] == 1, "what was allowed once stays"
        again = {"subscription": {"deadLetterPolicy": policy}, "updateMask": "deadLetterPolicy"}
        assert (await rest.error("PATCH", rest.subscription(), again))[0] == "INVALID_ARGUMENT"
