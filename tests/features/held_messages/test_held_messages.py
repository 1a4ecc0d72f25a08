"""Messages are given back and dead-lettered by their ids; an extension (G2)."""

import pytest

from tests.fixtures.broker import Json, Rest, eventually, message, text
from tests.fixtures.push_sink import PushSink

pytestmark = pytest.mark.own_broker(min_delivery_attempts=1, dead_letter_interval_seconds=0.05)


async def release(rest: Rest, *ids: str) -> dict[str, str]:
    return (await rest.ok("POST", f"{rest.subscription()}:release", {"messageIds": list(ids)}))["counts"]


async def dead_letter(rest: Rest, *ids: str) -> dict[str, str]:
    return (await rest.ok("POST", f"{rest.subscription()}:deadLetter", {"messageIds": list(ids)}))["counts"]


async def with_dead_letters(rest: Rest, **fields: object) -> None:
    """Make a subscription whose dead letters `morgue` reads."""
    await rest.create_topic()
    await rest.create_topic("morgue")
    await rest.create_subscription("morgue", topic="morgue")
    policy = {"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 100}
    await rest.create_subscription(ackDeadlineSeconds=600, deadLetterPolicy=policy, **fields)


async def dead_letters(rest: Rest, count: int) -> list[Json]:
    """Return the messages that have come to the dead-letter topic, once they are so many."""
    found: list[Json] = []

    async def all_came() -> bool:
        found.extend(await rest.pull("morgue"))
        return len(found) >= count

    await eventually(all_came)
    return [one["message"] for one in found]


async def test_a_message_that_a_consumer_holds_is_delivered_again_at_once(rest: Rest) -> None:
    """Not the others of the same response, and not after the delay of the retry policy."""
    await rest.create_topic()
    policy = {"minimumBackoff": "600s", "maximumBackoff": "600s"}
    await rest.create_subscription(ackDeadlineSeconds=600, retryPolicy=policy)
    ids = await rest.publish("a", "b", "c")
    held = await rest.pull()
    assert len(held) == 3
    assert await release(rest, ids[1]) == {"released": "1"}
    [again] = await rest.pull()
    assert again["message"]["messageId"] == ids[1]
    late = [one for one in held if one["message"]["messageId"] == ids[1]]
    await rest.acknowledge(late)  # of the consumer that had it: without effect
    assert await release(rest, ids[1]) == {"released": "1"}
    await rest.acknowledge(await rest.pull())
    await rest.acknowledge(held)
    assert await release(rest, *ids, "1000000000099999") == {"alreadySettled": "3", "unknown": "1"}


async def test_a_key_whose_message_is_held_goes_on(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600, enableMessageOrdering=True)
    ids = await rest.publish(*(message(each, orderingKey="k") for each in "abc"))
    [first] = await rest.pull(max_messages=1)
    assert text(first["message"]) == "a"
    assert await rest.pull() == []
    assert await release(rest, ids[2], ids[0]) == {"waiting": "1", "released": "1"}
    assert [text(one["message"]) for one in await rest.drain()] == ["a", "b", "c"]


async def test_a_message_is_dead_lettered_while_it_is_held_and_while_it_is_retried(rest: Rest) -> None:
    policy = {"minimumBackoff": "600s", "maximumBackoff": "600s"}
    await with_dead_letters(rest, retryPolicy=policy)
    held, retried, waiting = [(await rest.publish(each))[0] for each in ("held", "retried", "waiting")]
    received = await rest.pull(max_messages=2)
    await rest.modify_ack_deadline([one for one in received if one["message"]["messageId"] == retried], 0)
    assert await dead_letter(rest, held, retried, waiting) == {"deadLettered": "2", "waiting": "1"}
    letters = await dead_letters(rest, 2)
    assert {letter["attributes"]["broker-source-message-id"] for letter in letters} == {held, retried}
    assert {letter["attributes"]["broker-dead-letter-reason"] for letter in letters} == {"reject"}
    assert [one["message"]["messageId"] for one in await rest.drain()] == [waiting]


@pytest.mark.parametrize("is_held", [True, False], ids=["held", "retried"])
async def test_the_first_message_of_a_key_is_dead_lettered_and_the_next_is_delivered(
    rest: Rest, is_held: bool
) -> None:
    policy = {"minimumBackoff": "600s", "maximumBackoff": "600s"}
    await with_dead_letters(rest, retryPolicy=policy, enableMessageOrdering=True)
    ids = await rest.publish(*(message(each, orderingKey="k") for each in "abc"))
    received = await rest.pull()
    if not is_held:
        await rest.modify_ack_deadline(received[:1], 0)
        assert await rest.pull() == []
    counts = await dead_letter(rest, ids[1])
    assert set(counts) <= {"waiting", "outstanding"}
    assert await dead_letter(rest, ids[0]) == {"deadLettered": "1"}
    [letter] = await dead_letters(rest, 1)
    assert text(letter) == "a"
    if is_held:
        await rest.acknowledge(received[1:])
    assert await dead_letter(rest, ids[0]) == {"alreadySettled": "1"}


async def test_a_poison_message_of_a_webhook_is_dead_lettered(rest: Rest, push_sink: PushSink) -> None:
    """The endpoint refuses one message of a key, which holds up the next."""
    await rest.create_topic()
    await rest.create_topic("morgue")
    await rest.create_subscription("morgue", topic="morgue")
    await rest.create_subscription(
        enableMessageOrdering=True,
        pushConfig={"pushEndpoint": f"{push_sink.url}/status/500"},
        deadLetterPolicy={"deadLetterTopic": rest.topic("morgue"), "maxDeliveryAttempts": 100},
        retryPolicy={"minimumBackoff": "600s", "maximumBackoff": "600s"},
    )
    [poison] = await rest.publish(message("poison", orderingKey="k"))

    async def is_dead_lettered() -> bool:
        return "deadLettered" in await dead_letter(rest, poison)

    await eventually(is_dead_lettered)
    [letter] = await dead_letters(rest, 1)
    assert text(letter) == "poison"


async def test_a_message_that_was_given_back_is_reported_as_one_that_is_retried(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription(ackDeadlineSeconds=600, retainAckedMessages=True)
    [id_] = await rest.publish("a")
    await rest.pull()
    assert await release(rest, id_) == {"released": "1"}
    report = await rest.ok("GET", f"{rest.subscription()}/messages/{id_}")
    assert report["state"] == "RETRYING"


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        ({}, "INVALID_ARGUMENT", "messageIds has 0 ids"),
        ({"messageIds": ["x"]}, "INVALID_ARGUMENT", "messageIds[0]"),
        ({"messageIds": ["1000000000000001"] * 1001}, "INVALID_ARGUMENT", "1001"),
        ({"messageIds": "1000000000000001"}, "INVALID_ARGUMENT", "messageIds"),
    ],
)
@pytest.mark.parametrize("verb", ["release", "deadLetter"])
async def test_what_cannot_be_meant_is_refused(rest: Rest, verb: str, body: Json, code: str, said: str) -> None:
    await with_dead_letters(rest)
    answered, why = await rest.error("POST", f"{rest.subscription()}:{verb}", body)
    assert (answered, said in why) == (code, True), why


async def test_a_subscription_without_dead_letters_dead_letters_nothing(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    [id_] = await rest.publish("a")
    await rest.pull()
    code, why = await rest.error("POST", f"{rest.subscription()}:deadLetter", {"messageIds": [id_]})
    assert (code, "with a dead-letter topic" in why) == ("FAILED_PRECONDITION", True), why
