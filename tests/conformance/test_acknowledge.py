"""Acknowledge and ModifyAckDeadline over REST, as Google's service does them (A7)."""

import asyncio

import pytest

from tests.fixtures.broker import PATIENCE_SECONDS, Json, Rest, text

VERBS = [("acknowledge", {}), ("modifyAckDeadline", {"ackDeadlineSeconds": 20})]
both_calls = pytest.mark.parametrize(("verb", "fields"), VERBS, ids=[verb for verb, _ in VERBS])


@pytest.fixture(autouse=True)
async def subscription(rest: Rest) -> str:
    """A topic with the subscription `sub`."""
    await rest.create_topic()
    await rest.create_subscription()
    return rest.subscription()


def ack_ids(received: list[Json]) -> list[str]:
    return [m["ackId"] for m in received]


async def nack(rest: Rest, received: list[Json]) -> None:
    if received:
        await rest.modify_ack_deadline(received, 0)


async def test_an_acknowledged_message_never_comes_back(rest: Rest) -> None:
    """A7: not even by a nack with its old ack id."""
    await rest.publish(*"abc")
    received = await rest.pull()
    await rest.acknowledge(received)
    await nack(rest, received)
    assert await rest.pull() == []


async def test_part_of_a_response_may_be_acknowledged(rest: Rest) -> None:
    """A7: the rest stays leased, and comes back by itself."""
    await rest.publish(*"abcdef")
    received = await rest.pull()
    await rest.acknowledge(received[::2])
    assert await rest.pull() == []
    await nack(rest, received)
    assert [text(m) for m in await rest.pull()] == ["b", "d", "f"]


async def test_ids_of_several_pulls_may_be_mixed_and_repeated(rest: Rest) -> None:
    """A7: exactly the named messages are acked."""
    await rest.publish(*(str(n) for n in range(10)))
    pulled = [await rest.pull(max_messages=3) for _ in range(4)]
    chosen = [pulled[3][0], pulled[0][1], pulled[2][2], pulled[0][1]]
    await rest.acknowledge(chosen)
    for received in pulled:
        await nack(rest, received)
    assert sorted(text(m) for m in await rest.pull()) == ["0", "2", "3", "4", "5", "6", "7"]


async def test_concurrent_acks_of_one_response_are_all_kept(rest: Rest) -> None:
    """A7: though they all change the same row."""
    await rest.publish(*(str(n) for n in range(50)))
    received = await rest.pull()
    await asyncio.gather(*(rest.acknowledge([m]) for m in received[:49]))
    await nack(rest, received)
    assert [text(m) for m in await rest.pull()] == ["49"]


async def test_thousands_of_ids_in_one_call(rest: Rest) -> None:
    """A7: 5,000 of five responses get a new deadline, and are acked, in one call each."""
    for _ in range(5):
        await rest.publish(*["x"] * 1000)
    received = [m for _ in range(5) for m in await rest.pull(max_messages=1000)]
    assert len(received) == 5000
    await rest.modify_ack_deadline(received, 30)
    await rest.acknowledge(received)
    await nack(rest, received)
    assert await rest.pull() == []


async def test_a_repeated_ack_succeeds(rest: Rest) -> None:
    """A7: acks are retried by clients whose answer was lost."""
    await rest.publish("a")
    received = await rest.pull()
    for _ in range(3):
        await rest.acknowledge(received)
    assert await rest.pull() == []


async def test_a_stale_id_is_accepted_and_the_new_one_counts(rest: Rest) -> None:
    """A7: a well-formed id of an earlier delivery is no error without exactly-once delivery."""
    await rest.publish("a")
    stale = await rest.pull()
    await nack(rest, stale)
    fresh = await rest.pull()
    await rest.modify_ack_deadline(stale, 30)
    await nack(rest, stale)
    assert await rest.pull() == [], "a stale nack does not end the new lease"
    await rest.acknowledge(stale)
    await rest.acknowledge(fresh)
    assert await rest.pull() == []


async def test_a_stale_ack_does_not_lose_a_redelivered_message(rest: Rest) -> None:
    """A7: as Google's emulator has it."""
    await rest.publish("a")
    stale = await rest.pull()
    await nack(rest, stale)
    fresh = await rest.pull()
    await rest.acknowledge(stale)
    await nack(rest, fresh)
    assert [text(m) for m in await rest.pull()] == ["a"]


async def test_a_late_ack_counts_while_the_message_is_not_delivered_again(rest: Rest) -> None:
    """A7: its deadline has passed, but nobody else has it yet."""
    await rest.publish("late", "marker")
    late, marker = await rest.pull()
    await rest.modify_ack_deadline([late, marker], 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        (first,) = await rest.pull(max_messages=1, wait=True)
    other = marker if text(first) == "late" else late
    await rest.acknowledge([other])
    await rest.acknowledge([first])
    assert await rest.pull() == []


@both_calls
async def test_no_ids_are_refused(rest: Rest, subscription: str, verb: str, fields: Json) -> None:
    """A7: an empty list is as wrong as none, in the service's words."""
    for body in (fields, fields | {"ackIds": []}):
        error = await rest.error("POST", f"{subscription}:{verb}", body)
        assert error == ("INVALID_ARGUMENT", "You have not specified an ack ID in the request.")


@both_calls
@pytest.mark.parametrize("bad", ["bogus", "", "!", "é", "A" * 40, "A" * 10_000, "projects/p/subscriptions/s:1"])
async def test_a_malformed_id_is_refused_and_named(
    rest: Rest, subscription: str, verb: str, fields: Json, bad: str
) -> None:
    """A7: nothing that was not asked for happens to the good id beside it."""
    await rest.publish("a")
    received = await rest.pull()
    body = fields | {"ackIds": [*ack_ids(received), bad]}
    status, message = await rest.error("POST", f"{subscription}:{verb}", body)
    assert status == "INVALID_ARGUMENT"
    assert message.startswith(f"You have passed an invalid ack ID to the service (ack_id={bad[:30]}")
    await rest.acknowledge(received)
    assert await rest.pull() == []


@both_calls
async def test_an_altered_id_does_no_harm(rest: Rest, subscription: str, verb: str, fields: Json) -> None:
    """A7: whatever the answer, it is not an internal error."""
    await rest.publish("a")
    ((good),) = ack_ids(await rest.pull())
    altered = [good[:i] + ("A" if good[i] != "A" else "B") + good[i + 1 :] for i in range(len(good))]
    for bad in [*altered, good[:-1], good + "A", good[1:], good * 2]:
        response = await rest.call("POST", f"{subscription}:{verb}", fields | {"ackIds": [bad]})
        assert response.status_code in {200, 400}, bad


@both_calls
async def test_an_id_of_another_subscription_has_no_effect_on_either(
    rest: Rest, subscription: str, verb: str, fields: Json
) -> None:
    """A7: Google's emulator refuses it; the service's answer is not known."""
    await rest.create_subscription("other")
    await rest.publish("a")
    mine, foreign = await rest.pull(), await rest.pull("other")
    status, _ = await rest.error("POST", f"{subscription}:{verb}", fields | {"ackIds": ack_ids(foreign)})
    assert status == "INVALID_ARGUMENT"
    await nack(rest, mine)
    assert len(await rest.pull()) == 1
    await rest.modify_ack_deadline(foreign, 0, "other")
    assert len(await rest.pull("other")) == 1


@pytest.mark.parametrize("body", [{"ackDeadlineSeconds": 0}, {}, {"ackDeadlineSeconds": "0"}])
async def test_a_deadline_of_zero_is_a_nack(rest: Rest, subscription: str, body: Json) -> None:
    """A7: absent is zero."""
    await rest.publish("a", "b")
    received = await rest.pull()
    body = body | {"ackIds": ack_ids(received[:1])}
    assert await rest.ok("POST", f"{subscription}:modifyAckDeadline", body) == {}
    assert [text(m) for m in await rest.pull()] == ["a"]


@pytest.mark.parametrize("seconds", [-1, 601, 2**31 - 1])
async def test_a_deadline_outside_0_to_600_is_refused(rest: Rest, subscription: str, seconds: int) -> None:
    """A7: Google's emulator has no upper bound."""
    await rest.publish("a")
    body = {"ackIds": ack_ids(await rest.pull()), "ackDeadlineSeconds": seconds}
    assert await rest.error("POST", f"{subscription}:modifyAckDeadline", body) == (
        "INVALID_ARGUMENT",
        f"Invalid ack deadline given (ack_deadline={seconds}). The ack deadline must be between 0 and 600 seconds.",
    )


async def test_a_deadline_of_one_and_of_600_seconds_is_accepted(rest: Rest) -> None:
    """A7: both bounds are inclusive."""
    await rest.publish("a")
    received = await rest.pull()
    await rest.modify_ack_deadline(received, 1)
    await rest.modify_ack_deadline(received, 600)
    await rest.acknowledge(received)


async def test_acks_of_a_subscription_whose_topic_is_deleted(rest: Rest) -> None:
    """A7, A2: what it had can still be acked, nacked and pulled."""
    await rest.publish("a", "b")
    received = await rest.pull()
    await rest.ok("DELETE", rest.topic())
    await rest.acknowledge(received[:1])
    await nack(rest, received[1:])
    assert [text(m) for m in await rest.pull()] == ["b"]


async def test_ids_from_before_a_subscription_was_made_anew_do_nothing(rest: Rest, subscription: str) -> None:
    """A2: the name is the same, the subscription is not."""
    await rest.publish("old")
    old = await rest.pull()
    await rest.ok("DELETE", subscription)
    await rest.create_subscription()
    await rest.publish("new")
    fresh = await rest.pull()
    response = await rest.call("POST", f"{subscription}:acknowledge", {"ackIds": ack_ids(old)})
    assert response.status_code in {200, 400}
    await nack(rest, fresh)
    assert [text(m) for m in await rest.pull()] == ["new"]
