"""Messages that are nacked again and again do not stand before others (docs/decisions/0060)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.core.claiming.transaction import allocate, allocation
from broker.model.delivery import Delivery
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, texts
from tests.fixtures.push_log import PushLog

HEALTHY = [f"healthy {number}" for number in range(200)]
MOMENT = timedelta(milliseconds=1)


def poison(count: int) -> list[str]:
    return [f"poison {number}" for number in range(count)]


def is_poison(text: str) -> bool:
    return text.startswith("poison")


@dataclass
class Consumer:
    """Pulls one batch after another, each so much later: nacks poison, and acks the rest.

    `nacks_once`: healthy messages that it nacks at their first delivery.
    """

    log: Log
    max_messages: int
    now: datetime
    pause: timedelta
    options: dict[str, Any] = field(default_factory=dict)
    nacks_once: set[str] = field(default_factory=set)
    delivered: list[str] = field(default_factory=list)
    acked: list[str] = field(default_factory=list)

    async def pull(self) -> list[str]:
        self.now += self.pause
        deliveries = await self.log.pull(self.max_messages, now=self.now, **self.options)
        for delivery in deliveries:
            await self._settle(delivery)
        self.delivered += texts(deliveries)
        return texts(deliveries)

    async def _settle(self, delivery: Delivery) -> None:
        nacked = [
            ordinal for ordinal, text in enumerate(texts([delivery])) if is_poison(text) or text in self.nacks_once
        ]
        self.nacks_once -= set(texts([delivery]))
        acked = [ordinal for ordinal in range(len(delivery.messages)) if ordinal not in nacked]
        if delivery.ordered and nacked:  # later messages of the key come back with the first one
            acked = [ordinal for ordinal in acked if ordinal < nacked[0]]
        if acked:
            await self._acknowledge(delivery, acked)
            self.acked += [texts([delivery])[ordinal] for ordinal in acked]
        if nacked:
            await self.log.nack(delivery, nacked, now=self.now)

    async def _acknowledge(self, delivery: Delivery, ordinals: Sequence[int]) -> None:
        if not delivery.ordered:
            await self.log.acknowledge(delivery, ordinals)
            return
        acks = {self.log.name(delivery): set(ordinals)}
        async with self.log.session() as session:
            await acknowledge_in_order(
                session, shard_id=self.log.shard_id, acks=acks, exactly_once=(), now=self.now
            )

    async def until_acked(self, wanted: Collection[str], *, within: int) -> None:
        """Pulls until all of these are acked; fails once there were more than `within` deliveries."""
        while not set(wanted) <= set(self.acked):
            await self.pull()
            assert len(self.delivered) <= within, (len(self.acked), self.delivered[-20:])


def consumer(log: Log, max_messages: int = 1, *, pause: timedelta = MOMENT, **options: Any) -> Consumer:
    return Consumer(log, max_messages, log.start, pause, options)


@pytest.mark.parametrize("pause", [MOMENT, 2 * SECOND], ids=["fast", "slow"])
@pytest.mark.parametrize("max_messages", [1, 10, 1000])
@pytest.mark.parametrize("count", [1, 10, 100])
async def test_poison_takes_no_more_than_half_of_the_deliveries(
    log: Log, count: int, max_messages: int, pause: timedelta
) -> None:
    await log.publish(*poison(count), *HEALTHY)
    most = 2 * (len(HEALTHY) + count)
    await consumer(log, max_messages, pause=pause).until_acked(HEALTHY, within=most)


async def test_poison_that_is_nacked_in_a_tight_loop_takes_hardly_any_delivery(log: Log) -> None:
    """The first delivery, the second, and one a second from then on."""
    await log.publish(*poison(10), *HEALTHY)
    fast = consumer(log, pause=SECOND / 1000)
    await fast.until_acked(HEALTHY, within=len(HEALTHY) + 20)


async def test_it_would_take_half_if_what_was_just_retried_did_not_wait(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.core.claiming.transaction.due.RETRY_SPACING", timedelta(0))
    monkeypatch.setattr(allocation, "RETRY_SPACING", timedelta(0))
    await log.publish(*poison(10), *HEALTHY)
    with pytest.raises(AssertionError):
        await consumer(log, pause=SECOND / 1000).until_acked(HEALTHY, within=len(HEALTHY) + 20)


async def claims_of_one_alternate(log: Log) -> None:
    await log.publish("poison", *HEALTHY)
    slow = consumer(log, pause=2 * SECOND)
    assert [is_poison((await slow.pull())[0]) for _ in range(9)] == [True] * 2 + [False, True] * 3 + [False]


async def test_claims_of_one_alternate_between_what_is_due_and_what_is_fresh(log: Log) -> None:
    await claims_of_one_alternate(log)


async def test_they_would_not_if_the_turn_were_not_kept_in_the_cursor(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for another process, which knows nothing but the cursor."""
    real = allocate.allocate_due
    monkeypatch.setattr(
        allocate, "allocate_due", lambda *given, **named: real(*given, **named | {"due_first": True})
    )
    with pytest.raises(AssertionError):
        await claims_of_one_alternate(log)


async def test_messages_that_are_due_do_not_wait_for_the_end_of_the_backlog(log: Log) -> None:
    """Fresh messages that never end take half at most, too."""
    await log.publish("retried", *HEALTHY)
    slow = consumer(log, pause=2 * SECOND)
    slow.nacks_once = {"retried"}
    await slow.until_acked({"retried"}, within=3)


@pytest.mark.parametrize("max_messages", [1, 10])
async def test_a_hundred_that_were_nacked_before_go_out_once_before_others_that_fall_due(
    log: Log, max_messages: int
) -> None:
    """Before a message that was nacked once, and one whose deadline has passed: each nack moves poison behind."""
    await log.publish(*poison(100))
    await consumer(log, 1000).pull()
    await log.publish("nacked once", "expires")
    *again, others = await log.pull(now=log.start + 2 * MOMENT)
    assert texts([others]) == ["nacked once", "expires"]
    for delivery in again:
        await log.nack(delivery, now=log.start + 3 * MOMENT)
    await log.nack(others, [0], now=log.start + 4 * MOMENT)
    slow = consumer(log, max_messages)
    slow.now = log.start + 2 * ACK_DEADLINE
    await slow.until_acked({"nacked once", "expires"}, within=101 + max_messages)


async def test_what_was_just_retried_waits_for_others_that_fall_due_later(log: Log) -> None:
    await log.publish(*poison(100))
    tight = consumer(log, 1000)
    for _ in range(3):
        await tight.pull()
    await log.publish("nacked once")
    single = consumer(log)
    single.now, single.nacks_once = tight.now, {"nacked once"}
    assert [await single.pull() for _ in range(2)] == [["nacked once"]] * 2


async def test_what_was_just_retried_is_redelivered_at_once_if_nothing_else_can_be(log: Log) -> None:
    await log.publish("poison")
    tight = consumer(log)
    assert [await tight.pull() for _ in range(5)] == [["poison"]] * 5


async def test_a_large_message_that_is_due_leaves_capacity_for_fresh_ones(log: Log) -> None:
    """By bytes, as by their number: it would fill every response."""
    await log.publish("poison" + "x" * 5_000, *HEALTHY[:20])
    slow = consumer(log, 10, pause=2 * SECOND, max_bytes=4_000)
    await slow.until_acked(HEALTHY[:20], within=30)


async def test_a_large_fresh_message_goes_out_beside_small_ones_that_are_due(log: Log) -> None:
    await log.publish(*poison(10))
    slow = consumer(log, 10, pause=2 * SECOND, max_bytes=4_000)
    await slow.pull()
    large = "large" + "x" * 5_000
    await log.publish(large)
    await slow.until_acked({large}, within=30)


# --- ordering keys ------------------------------------------------------------------------------------------------


async def publish_keys(log: Log, *, keyed: Sequence[str], count: int, keyless: int = 0) -> list[str]:
    """Messages in turns, of keys and without one; returns what is no poison."""
    healthy = []
    for number in range(count):
        for key in keyed:
            body = f"{key} {number}"
            await log.publish(body, key=key)
            healthy += [] if key.startswith("poison") else [body]
    without = [f"no key {number}" for number in range(keyless)]
    if without:
        await log.publish(*without)
    return healthy + without


@pytest.mark.parametrize("pause", [MOMENT, 2 * SECOND], ids=["fast", "slow"])
@pytest.mark.parametrize("max_messages", [1, 10, 1000])
async def test_only_the_key_of_a_poison_message_waits(log: Log, max_messages: int, pause: timedelta) -> None:
    keys = [f"key {number}" for number in range(4)]
    healthy = await publish_keys(log, keyed=["poison", *keys], count=5, keyless=10)
    most = 2 * len(healthy) + 5
    await consumer(log, max_messages, pause=pause, ordered=True).until_acked(healthy, within=most)


@pytest.mark.parametrize("poisoned", [1, 10])
async def test_poison_of_keys_does_not_stand_before_a_message_without_one(log: Log, poisoned: int) -> None:
    """Keys went before all else that was due."""
    await publish_keys(log, keyed=[f"poison {number}" for number in range(poisoned)], count=2)
    await log.publish("no key")
    slow = consumer(log, pause=2 * SECOND, ordered=True)
    slow.nacks_once = {"no key"}
    await slow.until_acked({"no key"}, within=4 * poisoned + 4)


async def test_a_key_goes_on_at_once_when_a_message_that_was_retried_is_acked(log: Log) -> None:
    """What is due of the key then was never retried."""
    await publish_keys(log, keyed=["poison", "key"], count=3)
    tight = consumer(log, ordered=True)
    tight.nacks_once = {"key 0"}
    await tight.until_acked({"key 0", "key 1", "key 2"}, within=8)


# --- claims for several subscriptions -----------------------------------------------------------------------------


async def test_poison_of_one_subscription_takes_no_more_than_half_of_a_claim_for_several(push_log: PushLog) -> None:
    """As for endpoints whose window is 1."""
    await push_log.publish("poison", *HEALTHY[:20])
    now = push_log.start
    delivered: list[list[str]] = [[], []]
    for _ in range(42):
        now += 2 * SECOND
        for number, one in enumerate(await push_log.claim(0, 1, now=now, max_messages=1)):
            delivered[number] += texts(one.deliveries)
            for delivery in one.deliveries:
                if number == 0 and is_poison(texts([delivery])[0]):
                    await push_log.nack(number, delivery, now=now)
                else:
                    await push_log.acknowledge(number, delivery)
    assert set(delivered[0]) >= set(HEALTHY[:20])
    assert delivered[1] == ["poison", *HEALTHY[:20]]
