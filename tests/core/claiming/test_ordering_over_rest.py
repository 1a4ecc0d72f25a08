"""Ordered subscriptions over REST (A6), the emulator's faults among them."""

import asyncio
from typing import Any

import pytest

from tests.fixtures.broker import Rest, message, text

Json = dict[str, Any]


def keyed(data: str, key: str = "k") -> Json:
    return message(data, orderingKey=key)


async def _subscription(rest: Rest, **fields: Any) -> None:
    await rest.create_topic()
    created = await rest.create_subscription(enableMessageOrdering=True, **fields)
    assert created["enableMessageOrdering"] is True


async def _publish(rest: Rest, *data: str) -> None:
    """One request each, as ordered publishers do; the dead letter is the key."""
    for each in data:
        await rest.publish(keyed(each, each[0]))


async def _pull_texts(rest: Rest, max_messages: int = 100, *, wait: bool = False) -> list[str]:
    return [text(m) for m in await rest.pull(max_messages=max_messages, wait=wait)]


async def test_ordering_is_chosen_at_creation_for_good(rest: Rest) -> None:
    await _subscription(rest)
    assert (await rest.ok("GET", rest.subscription()))["enableMessageOrdering"] is True
    update = {"subscription": {"enableMessageOrdering": False}, "updateMask": "enableMessageOrdering"}
    assert (await rest.error("PATCH", rest.subscription(), update))[0] == "INVALID_ARGUMENT"


async def test_a_slow_message_holds_its_key_only(rest: Rest) -> None:
    await _subscription(rest)
    await _publish(rest, "k1", "k2", "j1")
    await rest.publish("no key")
    [k1] = await rest.pull(max_messages=1)
    others = await rest.pull()
    assert (text(k1), sorted(map(text, others))) == ("k1", ["j1", "no key"])
    assert await rest.pull() == []
    await rest.acknowledge([k1])
    assert await _pull_texts(rest) == ["k2"]


async def test_a_nacked_message_comes_before_those_behind_it(rest: Rest) -> None:
    """The emulator delivers k2 next."""
    await _subscription(rest)
    await _publish(rest, "k1", "k2")
    await rest.modify_ack_deadline(await rest.pull(max_messages=1), 0)
    assert await _pull_texts(rest, 1) == ["k1"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1,)])
async def test_nacked_messages_come_back_in_publish_order(rest: Rest, order: tuple[int, ...]) -> None:
    """The emulator delivers k4 first, and nacks made backwards in their own order."""
    await _subscription(rest)
    await _publish(rest, "k1", "k2", "k3")
    received = await rest.pull()
    await _publish(rest, "k4")
    for ordinal in order:
        await rest.modify_ack_deadline([received[ordinal]], 0)
    if min(order) > 0:
        await rest.acknowledge(received[: min(order)])
    left = [text(m) for m in received[min(order) :]]
    again = await rest.pull()
    assert [text(m) for m in again] == left
    await rest.acknowledge(again)
    assert await _pull_texts(rest) == ["k4"]


async def test_a_waiting_pull_gets_the_next_message_when_the_one_before_is_acked(rest: Rest) -> None:
    await _subscription(rest)
    await _publish(rest, "k1", "k2")
    first = await rest.pull(max_messages=1)
    waiting = asyncio.create_task(_pull_texts(rest, wait=True))
    await asyncio.sleep(0)  # it is on its way; if it came after the ack it would find k2 all the same
    await rest.acknowledge(first)
    assert await waiting == ["k2"]


async def test_seeking_to_a_time_works(rest: Rest) -> None:
    """The emulator answers 501."""
    await _subscription(rest, retainAckedMessages=True)
    await _publish(rest, "k1", "k2")
    received = await rest.pull()
    await rest.acknowledge(received)
    since = received[0]["message"]["publishTime"]
    assert (await rest.ok("POST", f"{rest.subscription()}:seek", {"time": since}))["replayedMessages"] == 2
    assert await _pull_texts(rest) == ["k1", "k2"]


async def test_exactly_once_tells_an_early_ack_to_come_again(rest: Rest) -> None:
    await _subscription(rest, enableExactlyOnceDelivery=True)
    await _publish(rest, "k1", "k2")
    k1, k2 = await rest.pull()
    body = {"ackIds": [k2["ackId"]]}
    response = await rest.call("POST", f"{rest.subscription()}:acknowledge", body)
    [detail] = response.json()["error"]["details"]
    assert detail["metadata"] == {k2["ackId"]: "TRANSIENT_FAILURE_UNORDERED_ACK_ID"}
    await rest.acknowledge([k1, k2])
    await rest.acknowledge([k1, k2])


async def test_positions_count_messages_that_wait_for_their_key(rest: Rest) -> None:
    await _subscription(rest)
    await _publish(rest, "k1", "k2", "k3")
    await rest.pull(max_messages=1)
    await rest.pull()
    position = await rest.ok("GET", f"{rest.subscription()}/snapshot")
    assert "3" in str(position), position
