"""Deliveries of an ordered subscription, side by side with a small model of them (A6).

The model has a queue for each ordering key: the messages that are not settled, in publish order.  The first `out`
of them are out under one attempt.  Time is a number that a rule advances.
"""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.db.driver.database import Database
from broker.model.delivery import Delivery
from broker.model.retry_policy import RetryPolicy
from tests.core.claiming.state_machines import on_database, short_steps
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log

POLICY = RetryPolicy(minimum_backoff=4 * SECOND, maximum_backoff=9 * SECOND)
LONGEST_DEADLINE_SECONDS = 30
# After it whatever is out is due: its deadline, and the retry delay that begins then, have passed.
LONGEST_WAIT = LONGEST_DEADLINE_SECONDS * SECOND + POLICY.maximum_backoff
KEYS = ["a", "b", "c"]


@dataclass
class Queue:
    """What is left of a key.  `attempts` goes with `messages`; `retry_at`: when the first that came back may go."""

    messages: list[str] = field(default_factory=list)
    attempts: dict[str, int] = field(default_factory=dict)
    out: int = 0
    attempt_id: int = 0
    run: list[str] = field(default_factory=list)  # as it was delivered
    acked: set[str] = field(default_factory=set)
    deadline: datetime | None = None
    retry_at: datetime | None = None

    def deliverable(self, now: datetime, policy: RetryPolicy | None) -> bool:
        if not self.messages:
            return False
        if self.out:
            assert self.deadline is not None
            delay = policy.delay(self.attempts[self.messages[0]]) if policy else timedelta()
            return self.deadline + delay <= now
        return self.retry_at is None or self.retry_at <= now

    def still_out(self, attempt_id: int, text: str) -> bool:
        named = attempt_id == self.attempt_id and text in self.messages[: self.out]
        return named and text not in self.acked

    def settle(self) -> None:
        while self.out and self.messages[0] in self.acked:
            self.acked.discard(self.messages.pop(0))
            self.out -= 1

    def take_back(self, text: str, retry_at: datetime) -> None:
        self.out = self.messages.index(text)
        self.acked -= set(self.messages[self.out :])
        self.retry_at = retry_at


class OrderedDeliveries(RuleBasedStateMachine):
    """Rules act on both; `pull` compares."""

    runner: asyncio.Runner
    database: Database
    number = 0

    @initialize(with_policy=st.booleans(), exactly_once=st.booleans(), max_run=st.sampled_from([1, 3, 1000]))
    def begin(self, with_policy: bool, exactly_once: bool, max_run: int) -> None:
        OrderedDeliveries.number += 1
        self.now = self.runner.run(self.database.now()).replace(microsecond=0)
        self.policy = POLICY if with_policy else None
        self.exactly_once, self.max_run = exactly_once, max_run
        self.log: Log = self.runner.run(make_log(self.database, self.now, f"o{OrderedDeliveries.number}"))
        self.queues = {key: Queue() for key in KEYS}
        self.unkeyed: list[str] = []
        self.deliveries: list[Delivery] = []
        self.published = 0
        self.acked_at: dict[tuple[int, int], datetime] = {}

    @rule(key=st.sampled_from([*KEYS, ""]), count=st.integers(1, 4))
    def publish(self, key: str, count: int) -> None:
        data = [f"{key}{self.published + n}" for n in range(count)]
        self.published += count
        self.runner.run(self.log.publish(*data, now=self.now, key=key))
        if key:
            self.queues[key].messages += data
            self.queues[key].attempts |= dict.fromkeys(data, 0)
        else:
            self.unkeyed += data

    @rule(max_messages=st.lists(st.integers(1, 6), min_size=1, max_size=3))
    def pull(self, max_messages: list[int]) -> None:
        self._compare(max_messages)

    def _compare(self, max_messages: list[int]) -> int:
        deliverable = {key for key, queue in self.queues.items() if queue.deliverable(self.now, self.policy)}
        claimed = self.runner.run(
            self.log.claim(
                *max_messages,
                now=self.now,
                retry_policy=self.policy,
                exactly_once=self.exactly_once,
                ordered=True,
                max_run=self.max_run,
            )
        ).deliveries
        for limit, response in zip(max_messages, claimed, strict=True):
            assert sum(len(delivery.messages) for delivery in response) <= limit
        runs = [delivery for response in claimed for delivery in response]
        keys = [delivery.messages[0].ordering_key for delivery in runs if delivery.ordered]
        assert len(set(keys)) == len(keys)
        assert {*keys} <= deliverable
        assert bool(runs) == bool(deliverable or self.unkeyed)
        for delivery in runs:
            self._deliver(delivery)
        return len(runs)

    def _deliver(self, delivery: Delivery) -> None:
        texts = [message.data.decode() for message in delivery.messages]
        if not delivery.ordered:
            assert texts == self.unkeyed[: len(texts)]
            del self.unkeyed[: len(texts)]
            self.runner.run(self.log.acknowledge(delivery))
            return
        assert len(texts) <= self.max_run
        queue = self.queues[delivery.messages[0].ordering_key or ""]
        assert texts == queue.messages[: len(texts)]
        for text in texts:
            queue.attempts[text] += 1
            assert delivery.attempt_number == queue.attempts[text]
        queue.out, queue.attempt_id, queue.acked, queue.run = len(texts), delivery.attempt_id, set(), texts
        queue.deadline, queue.retry_at = self.now + ACK_DEADLINE, None
        self.deliveries.append(delivery)

    def _choose(self, data: st.DataObject) -> tuple[Delivery, Queue, list[int]]:
        out = [d for d in self.deliveries if self._still_out(d, self._queue(d), list(range(len(d.messages))))]
        delivery = data.draw(st.sampled_from(out + self.deliveries[-2:]))
        ordinals = st.lists(st.integers(0, len(delivery.messages) - 1), min_size=1, unique=True)
        return delivery, self._queue(delivery), data.draw(ordinals)

    def _queue(self, delivery: Delivery) -> Queue:
        return self.queues[delivery.messages[0].ordering_key or ""]

    def _still_out(self, delivery: Delivery, queue: Queue, ordinals: list[int]) -> list[int]:
        texts = [message.data.decode() for message in delivery.messages]
        return sorted(p for p in ordinals if queue.still_out(delivery.attempt_id, texts[p]))

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        delivery, queue, ordinals = self._choose(data)
        texts = [message.data.decode() for message in delivery.messages]
        named = self._still_out(delivery, queue, ordinals)
        early: set[int] = set()
        if self.exactly_once:
            if queue.deadline is None or queue.deadline <= self.now:
                named = []
            left = [p for p in range(len(texts)) if queue.still_out(delivery.attempt_id, texts[p])]
            in_turn = 0
            while in_turn < len(left) and left[in_turn] in named:
                in_turn += 1
            early = set(named) - set(left[:in_turn])
            named = left[:in_turn]
        acked = self._acknowledge(delivery, ordinals)
        assert acked.out_of_order == early
        if not self.exactly_once:
            assert acked.stale == set(ordinals) - set(named)
        else:
            before = {p: at for p in ordinals if (at := self.acked_at.get((delivery.attempt_id, p)))}
            lately = {p for p, at in before.items() if self.now < at + ACK_DEADLINE}
            assert acked.stale - (before.keys() - lately) == set(ordinals) - set(named) - early - before.keys()
            self.acked_at |= {(delivery.attempt_id, p): self.now for p in named}
        queue.acked |= {texts[p] for p in named}
        if named:
            queue.settle()
            if not queue.out and queue.retry_at is None:
                queue.retry_at = self.now

    @dataclass
    class Acked:
        stale: set[int]
        out_of_order: set[int]

    def _acknowledge(self, delivery: Delivery, ordinals: list[int]) -> Acked:
        async def send() -> OrderedDeliveries.Acked:
            name = self.log.name(delivery)
            async with self.database.hot() as connection:
                done = await acknowledge_in_order(
                    connection,
                    shard_id=self.log.shard_id,
                    acks={name: set(ordinals)},
                    exactly_once={name.subscription_id} if self.exactly_once else (),
                    now=self.now,
                )
            return self.Acked(done.stale.get(name, set()), done.out_of_order.get(name, set()))

        return self.runner.run(send())

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        delivery, queue, ordinals = self._choose(data)
        texts = [message.data.decode() for message in delivery.messages]
        named = self._still_out(delivery, queue, ordinals)
        missing = self.runner.run(self.log.nack(delivery, ordinals, now=self.now, retry_policy=self.policy))
        assert missing == set(ordinals) - set(named)
        if named:
            text = texts[named[0]]
            delay = self.policy.delay(queue.attempts[text]) if self.policy else timedelta()
            queue.take_back(text, self.now + delay)

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), seconds=st.integers(1, LONGEST_DEADLINE_SECONDS))
    def modify_ack_deadline(self, data: st.DataObject, seconds: int) -> None:
        delivery, queue, ordinals = self._choose(data)
        texts = [message.data.decode() for message in delivery.messages]
        named = self._still_out(delivery, queue, ordinals)
        due = self.now + seconds * SECOND
        missing = self.runner.run(self.log.modify_ack_deadline(delivery, ordinals, due))
        assert missing == set(ordinals) - set(named)
        if named and texts[named[0]] == queue.messages[0]:
            queue.deadline = due

    @rule(seconds=st.sampled_from([1, 3, 4, 9, 10, 30]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    def teardown(self) -> None:
        """Everything that is left comes, in order, and then nothing."""
        if not hasattr(self, "log"):
            return
        for _ in range(200):
            self.now += LONGEST_WAIT
            seen = len(self.deliveries)
            if not self._compare([1000]):
                break
            for delivery in self.deliveries[seen:]:
                queue = self.queues[delivery.messages[0].ordering_key or ""]
                self._acknowledge(delivery, list(range(len(delivery.messages))))
                queue.acked = set(queue.run)
                queue.settle()
        assert not any(queue.messages for queue in self.queues.values())
        subscription_id = self.log.subscription.subscription_id
        rows = self.runner.run(
            self.log.rows(
                "SELECT ordering_key FROM delivery_attempts"
                f" WHERE subscription_id = {subscription_id} AND ordering_key IS NOT NULL"
            )
        )
        assert rows == []


def test_ordered_deliveries_are_what_the_model_says(database_url: str) -> None:
    with on_database(OrderedDeliveries, database_url) as machine:
        run_state_machine_as_test(machine, settings=short_steps(60))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_ordered_deliveries_are_what_the_model_says_for_longer(database_url: str) -> None:
    with on_database(OrderedDeliveries, database_url) as machine:
        run_state_machine_as_test(machine, settings=short_steps(1000))
