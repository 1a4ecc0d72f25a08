"""Deliveries of the real store, side by side with a small model of what they should be (A4, A7).

The model knows nothing of cursors, rows or bits: a message is waiting, out under an ack id until a deadline, or
acked, and past its retention it is not handed out any more.  Time is a number that a rule advances.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker.core.backlog.delivery_state import DeliveryState
from broker.core.log.logged_message import read_message
from broker.core.records.journal_of_message import read_settlement
from broker.db.driver.database import Database
from broker.features.inspect.deliveries.report import DeliveryReport, report_of, settled_by
from broker.features.inspect.deliveries.rows import count_before, read_deliveries
from broker.model.delivery import Delivery
from broker.model.retry_policy import RetryPolicy
from tests.core.claiming.state_machines import on_database, short_steps
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log

RETENTION = 25 * SECOND
FOR_EVER = datetime.max.replace(tzinfo=UTC)
POLICY = RetryPolicy(minimum_backoff=4 * SECOND, maximum_backoff=9 * SECOND)


@dataclass
class Message:
    """`ack_id` names the delivery that it is out under; `due` is when it may be delivered (again).

    It is past its retention after `expires`, and past its own time from `until` on.  `dropped`: it was so when it
    was due, and its ack ids name nothing any more.
    """

    due: datetime
    expires: datetime
    until: datetime = FOR_EVER
    attempts: int = 0
    ack_id: tuple[int, int] | None = None
    pending: bool = False
    acked: bool = False
    dropped: bool = False

    def is_past(self, now: datetime) -> bool:
        return self.expires < now or self.until <= now

    def state(self, now: datetime) -> DeliveryState:
        """What is to be told of it (F3)."""
        if self.acked:
            return DeliveryState.SETTLED
        is_out = self.ack_id is not None and not self.pending and self.due > now
        if self.is_past(now) and not is_out:
            return DeliveryState.EXPIRED
        if self.ack_id is None:
            return DeliveryState.WAITING
        return DeliveryState.OUTSTANDING if is_out else DeliveryState.RETRYING

    def may_be_dropped(self, now: datetime) -> bool:
        """A claim lets it go when it meets it, and only then."""
        return self.ack_id is not None and not self.acked and self.state(now) is DeliveryState.EXPIRED


@dataclass
class Model:
    retry_policy: RetryPolicy | None
    messages: dict[str, Message] = field(default_factory=dict)

    def deliverable(self, now: datetime) -> set[str]:
        return {
            text
            for text, m in self.messages.items()
            if not m.acked and not m.is_past(now) and self._ready_at(m) <= now
        }

    def _ready_at(self, message: Message) -> datetime:
        if self.retry_policy is None or not message.attempts or message.pending:
            return message.due
        return message.due + self.retry_policy.delay(message.attempts)


class Deliveries(RuleBasedStateMachine):
    """Rules act on both; `pull` compares."""

    runner: asyncio.Runner
    database: Database
    number = 0
    replica_reads = 0

    @initialize(with_policy=st.booleans())
    def begin(self, with_policy: bool) -> None:
        Deliveries.number += 1
        self.now = self.runner.run(self.database.now()).replace(microsecond=0)
        self.model = Model(POLICY if with_policy else None)
        self.log: Log = self.runner.run(make_log(self.database, self.now, f"model{Deliveries.number}"))
        self.deliveries: list[Delivery] = []
        self.published = self.passed = 0  # messages; those up to which all were handed out, or are past their time

    @rule(count=st.integers(1, 6), ttl=st.sampled_from([None, None, 1, 4, 10, 13]))
    def publish(self, count: int, ttl: int | None) -> None:
        data = [f"m{self.published + n}" for n in range(count)]
        self.published += count
        life = None if ttl is None else ttl * SECOND
        self.runner.run(self.log.publish(*data, now=self.now, ttl=life))
        until = FOR_EVER if life is None else self.now + life
        self.model.messages |= {text: Message(self.now, self.now + RETENTION, until) for text in data}

    @rule(max_messages=st.integers(1, 8))
    def pull(self, max_messages: int) -> None:
        expected = self.model.deliverable(self.now)
        claimed = self.runner.run(
            self.log.claim(max_messages, now=self.now, retry_policy=self.model.retry_policy, retention=RETENTION)
        ).deliveries[0]
        got = [m.data.decode() for delivery in claimed for m in delivery.messages]
        assert len(set(got)) == len(got)
        assert set(got) <= expected
        if any(m.may_be_dropped(self.now) for m in self.model.messages.values()):
            pass  # what is let go takes up room in a claim as well
        elif self.model.retry_policy is None and not self._is_any_passed_by():
            assert len(got) == min(max_messages, len(expected))
        else:  # so do rows whose delay has only to begin, and what is past its time before anybody got it
            assert bool(got) == bool(expected)
        fresh = [text for text in got if not self.model.messages[text].attempts]
        assert fresh == sorted(fresh, key=lambda text: int(text[1:]))
        self.passed = max([self.passed, *(int(text[1:]) + 1 for text in fresh)])
        for delivery in claimed:
            self._deliver(delivery)

    def _is_any_passed_by(self) -> bool:
        """Whether the next messages that nobody got yet have one that is past its time (docs/decisions/0049)."""
        fresh = [self.model.messages[f"m{n}"] for n in range(self.passed, self.published)]
        return any(message.until <= self.now for message in fresh)

    def _deliver(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)
        for ordinal, stored in enumerate(delivery.messages):
            message = self.model.messages[stored.data.decode()]
            message.attempts += 1
            assert delivery.attempt_number == message.attempts
            message.ack_id, message.pending = (delivery.attempt_id, ordinal), False
            message.due = self.now + ACK_DEADLINE

    def _choose(self, data: st.DataObject) -> tuple[Delivery, list[int]]:
        delivery = data.draw(st.sampled_from(self.deliveries))
        ordinals = st.lists(st.integers(0, len(delivery.messages) - 1), min_size=1, unique=True)
        return delivery, data.draw(ordinals)

    def _named(self, delivery: Delivery, ordinals: list[int]) -> Iterator[tuple[int, Message]]:
        """The messages that these ack ids still name."""
        for ordinal in ordinals:
            message = self.model.messages[delivery.messages[ordinal].data.decode()]
            if message.ack_id == (delivery.attempt_id, ordinal) and not message.acked and not message.dropped:
                yield ordinal, message

    def _check(self, named: dict[int, Message], ordinals: list[int], missing: set[int]) -> dict[int, Message]:
        """Of what is named, what was found: all of it but what a claim has let go, as is known from now on."""
        for ordinal in missing & named.keys():
            assert named[ordinal].may_be_dropped(self.now)
            named.pop(ordinal).dropped = True
        assert missing == set(ordinals) - named.keys()
        return named

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        delivery, ordinals = self._choose(data)
        named = dict(self._named(delivery, ordinals))
        missing = self.runner.run(self.log.acknowledge(delivery, ordinals))
        for message in self._check(named, ordinals, missing).values():
            message.acked = True

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def nack(self, data: st.DataObject) -> None:
        delivery, ordinals = self._choose(data)
        policy = self.model.retry_policy
        named = dict(self._named(delivery, ordinals))
        missing = self.runner.run(self.log.nack(delivery, ordinals, now=self.now, retry_policy=policy))
        for message in self._check(named, ordinals, missing).values():
            message.due = self.now + (policy.delay(message.attempts) if policy else timedelta())
            message.pending = True

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), seconds=st.integers(1, 30))
    def modify_ack_deadline(self, data: st.DataObject, seconds: int) -> None:
        delivery, ordinals = self._choose(data)
        named = {p: message for p, message in self._named(delivery, ordinals) if not message.pending}
        due = self.now + seconds * SECOND
        missing = self.runner.run(self.log.modify_ack_deadline(delivery, ordinals, due))
        for message in self._check(named, ordinals, missing).values():
            message.due = due

    @rule(seconds=st.sampled_from([1, 3, 4, 9, 10, 30]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    @invariant()
    def what_is_told_of_a_message_is_what_became_of_it(self) -> None:
        """Of another one after each step; looking changes nothing, as the other rules then see (F3)."""
        if not hasattr(self, "log") or not self.model.messages:
            return
        self.replica_reads += 1
        place = self.replica_reads % len(self.model.messages)
        message = self.model.messages[f"m{place}"]
        report, before = self.runner.run(self._report(place + 1))
        assert report.state == message.state(self.now)
        assert report.attempt_number in (None, message.attempts)
        untouched = [
            m for m in list(self.model.messages.values())[:place] if m.state(self.now) is DeliveryState.WAITING
        ]
        assert before == (len(untouched) if report.state is DeliveryState.WAITING else None)

    async def _report(self, seq: int) -> tuple[DeliveryReport, int | None]:
        async with self.log.session() as session:
            found = await read_message(session, shard_id=self.log.shard_id, id_seq=seq)
            assert found is not None
            assert found.data == b"m%d" % (seq - 1)
            subscriptions = [replace(self.log.subscription, message_retention=RETENTION)]
            [delivery] = await read_deliveries(session, message=found, subscriptions=subscriptions)
            report = report_of(delivery, self.now)
            if report.state is DeliveryState.SETTLED:  # a claim records messages past their retention
                of = self.log.subscription.subscription_id
                entry = await read_settlement(session, subscription_id=of, shard_id=self.log.shard_id, seq=seq)
                report = settled_by(report, entry)
            if report.state is not DeliveryState.WAITING:
                return report, None
            return report, (await count_before(session, delivery, now=self.now))[0]

    @invariant()
    def what_is_stored_is_what_is_out(self) -> None:
        if not hasattr(self, "log"):
            return
        subscription_id = self.log.subscription.subscription_id
        rows = self.runner.run(
            self.log.rows(
                f"SELECT coalesce(sum(bit_count(open)), 0) FROM delivery_attempts"
                f" WHERE subscription_id = {subscription_id}"
            )
        )
        messages = self.model.messages.values()
        most = sum(1 for m in messages if m.ack_id and not m.acked and not m.dropped)
        dropped = sum(1 for m in messages if m.may_be_dropped(self.now) and not m.dropped)
        assert most - dropped <= rows[0][0] <= most


def test_deliveries_are_what_the_model_says(database_url: str) -> None:
    with on_database(Deliveries, database_url) as machine:
        run_state_machine_as_test(machine, settings=short_steps(40))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_deliveries_are_what_the_model_says_for_longer(database_url: str) -> None:
    with on_database(Deliveries, database_url) as machine:
        run_state_machine_as_test(machine, settings=short_steps(1000))
