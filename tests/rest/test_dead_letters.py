"""Dead-letter policies over REST (A5)."""

from tests.fixtures.broker import Rest, text


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
    await rest.publish("poison")
    assert await _fail_five_times(rest) == [1, 2, 3, 4, 5]
    [letter] = await rest.pull("dead-sub", wait=True)
    assert text(letter) == "poison"
    attributes = letter["message"]["attributes"]
    assert attributes["CloudPubSubDeadLetterSourceSubscription"] == "sub"
    assert attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert "projects/" + attributes["CloudPubSubDeadLetterSourceSubscriptionProject"] == rest.project
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
