"""On random histories, every report of how a message stands with a subscription is what a model says.

Histories publish, pull, ack, nack, move deadlines, let time pass, seek, dead-letter, redrive, discard, purge,
resend, retract, and change the filter.  A pull may bring any messages that the model lets it bring: what is
compared, after each step, is what is reported.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime

import msgspec
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

from broker.core.acking.delivery_attempts import acknowledge_in_order, modify_ack_deadline, modify_ordered_deadline
from broker.core.claiming.consumer import claim_target
from broker.core.claiming.transaction.claim import claim_at_any_node
from broker.core.claiming.transaction.request import ClaimRequest, More
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.core.log.log_walk import LogWalk
from broker.core.log.messages import append_messages, encode_messages
from broker.db.driver.database import Database
from broker.features.dead_letters.discarding.rows import Discard, discard
from broker.features.dead_letters.forwarding.forwarding import forward_dead_letters
from broker.features.purge.rows import PurgeStep, purge_matching
from broker.features.resend.rows import Resend, resend
from broker.features.retraction.removal import Asked, retract
from broker.model.deadline_change import AttemptStatus, DeadlineChange
from broker.model.delivery import Delivery, DeliveryRequest
from broker.model.journal import NOBODY
from broker.model.message import NewMessage
from broker.model.subscription import DeadLetterPolicy
from broker.model.timestamps import END_OF_TIME
from tests.core.backlog.delivery_state_model import BACKLOG, FOR_EVER, Message, Model
from tests.core.backlog.delivery_state_reports import Reports
from tests.core.backlog.test_seek import seek_to_time
from tests.core.claiming.state_machines import on_database, short_steps
from tests.fixtures.changed_filters import known, set_filter
from tests.fixtures.dead_letters import make_dead_letters, packed_for
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log, make_log
from tests.interleavings.steps import open_transaction

BIG = "attributes:big"
DAY = 86_400 * SECOND
UNRECORDED = BACKLOG | {"FILTERED", "EXPIRED"}


class DeliveryStates(RuleBasedStateMachine):
    """Rules act on the broker and on the model; invariants compare."""

    runner: asyncio.Runner
    database: Database
    number = 0
    ordered = False
    retention = 600 * SECOND
    keys = ("",)

    @initialize(filtered=st.booleans())
    def begin(self, filtered: bool) -> None:
        type(self).number += 1
        self.now = self.runner.run(self.database.now()).replace(microsecond=0)
        self.model = Model(self.ordered, self.retention)
        self.deliveries: list[Delivery] = []
        self.replica_reads = 0
        self.filter = ""
        self.runner.run(self._begin())
        self.known = self.runner.run(known(self.log))
        if filtered:
            self.change_filter()

    async def _begin(self) -> None:
        name = f"{type(self).__name__.lower()}{type(self).number}"
        self.log: Log = await make_log(self.database, self.now, name)
        self.dead_letters = await make_dead_letters(self.log, ordered=self.ordered)
        await self.log.execute(
            "UPDATE subscriptions SET max_delivery_attempts = 100,"
            f" message_retention = '{self.retention.total_seconds()} seconds'"
            f" WHERE subscription_id = {self.log.subscription.subscription_id}"
        )

    @property
    def messages(self) -> list[Message]:
        return list(self.model.messages.values())

    def _is_rare(self) -> bool:
        """Whether a rule may run that brings all messages to an end: at every third step."""
        return bool(self.messages) and self.replica_reads % 3 == 0

    def choose(self, data: st.DataObject) -> list[Message]:
        return data.draw(
            st.lists(st.sampled_from(self.messages), min_size=1, max_size=3, unique_by=lambda m: m.seq)
        )

    # --- messages come and go -----------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        bigs=st.lists(st.booleans(), min_size=1, max_size=4),
        ttl=st.sampled_from([None, None, 4, 13]),
    )
    def publish(self, data: st.DataObject, bigs: list[bool], ttl: int | None) -> None:
        self._publish(data.draw(st.sampled_from(self.keys)), bigs, ttl)

    def _publish(self, key: str, bigs: list[bool], ttl: int | None) -> range:
        life = None if ttl is None or key else ttl * SECOND
        published = self.now
        first = len(self.model.messages) + 1
        for seq, big in enumerate(bigs, first):
            until = FOR_EVER if life is None else published + life
            matches = big or not self.filter
            self.model.messages[seq] = Message(seq, key, published, until, big=big, matches=matches)
        batch = encode_messages(
            [NewMessage(data=b"x", attributes={"big": "1"} if big else {}, ordering_key=key) for big in bigs],
            (),
            None if life is None else [life] * len(bigs),
        )

        async def append() -> None:
            async with self.log.session() as session:
                assert await append_messages(session, shard_id=self.log.shard_id, requests=[batch], now=published)

        self.runner.run(append())
        return range(first, first + len(bigs))

    @rule(most=st.integers(1, 8))
    def pull(self, most: int) -> None:
        self._deliver(most)

    def _deliver(self, most: int) -> None:
        before = {m.seq: self.model.states(m, self.now) for m in self.messages}
        for delivery in self.runner.run(self._pull(most)):
            given = [self.model.messages[message.seq] for message in delivery.messages]
            for message in given:
                assert before[message.seq] <= {"WAITING", "RETRYING", "BLOCKED"}, (message, before[message.seq])
            self.deliveries.append(delivery)
            self.model.deliver(delivery, given, self.now + ACK_DEADLINE)
            assert delivery.attempt_number == given[0].attempts

    async def _pull(self, most: int) -> list[Delivery]:
        subscription = self.known
        requests = [DeliveryRequest(max_messages=most, max_bytes=10_000_000)]
        while True:
            target = claim_target(subscription, self.now, requests=requests, ack_deadline=ACK_DEADLINE)
            request = ClaimRequest(
                shard_id=self.log.shard_id,
                targets=[msgspec.structs.replace(target, max_attempts=None)],
                now=self.now,
            )
            claimed = await claim_at_any_node(self.database, request, self.log.attempt_ids)
            mine = claimed[subscription.subscription_id]
            if mine.deliveries[0] or mine.rest != More():
                return list(mine.deliveries[0])

    def _named(self, data: st.DataObject) -> tuple[Delivery, list[int], list[Message]]:
        """Returns ack ids of a response, and the messages that they still name."""
        delivery = data.draw(st.sampled_from(self.deliveries[-4:]))
        ordinals = data.draw(st.lists(st.integers(0, len(delivery.messages) - 1), min_size=1, unique=True))
        named = []
        for ordinal in sorted(ordinals):
            message = self.model.messages[delivery.messages[ordinal].seq]
            is_out = message.out or not delivery.ordered
            if message.ack_id == (delivery.attempt_id, ordinal) and not message.settled and is_out:
                named.append(message)
        return delivery, ordinals, [m for m in named if not m.acked]

    def _found(self, delivery: Delivery, named: list[Message], missing: set[int]) -> list[Message]:
        """Returns those of the named messages that were found: a claim may have let go of some that expired."""
        gone = {delivery.messages[ordinal].seq for ordinal in missing}
        for message in named:
            if message.seq in gone:
                may_be_gone = message.retracted or self.model.states(message, self.now) == {"EXPIRED"}
                assert may_be_gone, message
        return [message for message in named if message.seq not in gone]

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        delivery, ordinals, named = self._named(data)
        found = self._found(delivery, named, self.runner.run(self._acknowledge(delivery, ordinals)))
        for message in found:
            if message.retracted:
                message.settle("RETRACTED")
        self.model.acknowledge([message for message in found if not message.settled])

    async def _acknowledge(self, delivery: Delivery, ordinals: list[int]) -> set[int]:
        if not delivery.ordered:
            return await self.log.acknowledge(delivery, ordinals)
        acks = {self.log.name(delivery): set(ordinals)}
        async with self.log.session() as session:
            done = await acknowledge_in_order(
                session, shard_id=self.log.shard_id, acks=acks, exactly_once=(), now=self.now
            )
        return done.stale.get(self.log.name(delivery), set())

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), status=st.sampled_from(["nacked", "nacked", "exhausted"]))
    def nack(self, data: st.DataObject, status: AttemptStatus) -> None:
        delivery, ordinals, named = self._named(data)
        missing = self._modify(delivery, ordinals, self.now, status)
        found = self._found(delivery, named, missing) if not delivery.ordered else named
        if found:
            self.model.nack(found, exhausted=status == "exhausted")

    @precondition(lambda self: self.deliveries)
    @rule(data=st.data(), seconds=st.integers(1, 30))
    def modify_ack_deadline(self, data: st.DataObject, seconds: int) -> None:
        delivery, ordinals, named = self._named(data)
        named = [message for message in named if message.out or message.exhausted]
        missing = self._modify(delivery, ordinals, self.now + seconds * SECOND, "delivering")
        found = self._found(delivery, named, missing) if not delivery.ordered else named
        if found:
            self.model.move_deadline(found, self.now + seconds * SECOND)

    def _modify(self, delivery: Delivery, ordinals: list[int], due: datetime, status: AttemptStatus) -> set[int]:
        async def modify() -> set[int]:
            name = self.log.name(delivery)
            changes = [DeadlineChange(name, frozenset(ordinals), due, status)]
            where = {"shard_id": self.log.shard_id, "changes": changes, "jitter": 0.0, "now": self.now}
            async with self.log.session() as session:
                if name.ordered:
                    missing = await modify_ordered_deadline(session, **where)  # type: ignore[arg-type]
                else:
                    parts = list(self.log.attempt_ids.take_parts(1, now=self.now))
                    missing = await modify_ack_deadline(session, **where, new_parts=parts)  # type: ignore[arg-type]
            return missing.get(name, set())

        return self.runner.run(modify())

    @rule(seconds=st.sampled_from([1, 3, 5, 10, 20]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND

    # --- operations ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self._is_rare())
    @rule(data=st.data(), replays=st.booleans())
    def seek(self, data: st.DataObject, replays: bool) -> None:
        time = data.draw(st.sampled_from([m.published for m in self.messages] + [self.now + DAY]))
        self._seek(time, self.now - self.retention if replays else None)

    def _seek(self, time: datetime, replay_since: datetime | None) -> None:
        self.runner.run(seek_to_time(self.log, time, now=self.now, replay_since=replay_since, ordered=self.ordered))
        self.model.seek(time, replay_since, self.now)
        self.deliveries.clear()

    @precondition(lambda self: self._is_rare())
    @rule()
    def change_filter(self) -> None:
        """It decides about what is published from then on."""
        self.filter = "" if self.filter else BIG
        self.now += SECOND
        self.runner.run(set_filter(self.log, self.filter, self.now))
        self.known = self.runner.run(known(self.log))
        self.now += SECOND

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        chosen = self.choose(data)
        states = {message.seq: self.model.states(message, self.now) for message in chosen}

        async def act() -> Mapping[tuple[int, int], str]:
            asked = Discard(
                subscription_id=self.log.subscription.subscription_id,
                shard_ids=[self.log.shard_id],
                ids=[(self.log.shard_id, message.seq) for message in chosen],
                consumable={self.dead_letters.dead.subscription.subscription_id},
                author=NOBODY,
                now=self.now,
            )
            async with open_transaction(self.database) as session:
                return (await discard(session, asked, self.log.attempt_ids)).outcomes

        outcomes = self.runner.run(act())
        for message in chosen:
            outcome = outcomes[self.log.shard_id, message.seq]
            [*_, state] = sorted(states[message.seq])
            if message.retracted:
                assert outcome == "unknown"
            elif state in BACKLOG:
                is_head = not self.ordered or not message.key or message is self.model.head(message)
                row_is_given_up = any(m.exhausted for m in self.model.queue(message.key)) and self.ordered
                if row_is_given_up and message.handed_out and not is_head:
                    assert outcome == "waiting", (message, states)
                    continue
                assert outcome == "discarded", (message, states)
                self.model.take_out(message, "DISCARDED")
            elif state == "DEAD_LETTERED":
                assert outcome in ("discarded", "alreadySettled")
                message.settle("DEAD_LETTERED", "DISCARDED")
                message.dead_letters.clear()
            else:
                assert outcome == "alreadySettled", (message, states)

    @precondition(lambda self: self._is_rare())
    @rule()
    def purge(self) -> None:
        async def act() -> Mapping[int, str]:
            shard_id = self.log.shard_id
            walk = LogWalk(
                subscription_id=self.log.subscription.subscription_id,
                starts={shard_id: self.log.start},
                ends={shard_id: 2**62},
                until=END_OF_TIME,
                filter_path=to_jsonpath(parse_filter(BIG)),
            )
            after = walk.next_position({})
            assert after is not None
            step = PurgeStep(meant=walk, after=after, max_messages=1_000, author=NOBODY, now=self.now)
            async with open_transaction(self.database) as session:
                return (await purge_matching(session, step, self.log.attempt_ids)).outcomes

        meant = [
            m for m in self.messages if m.big and not m.retracted and self.model.states(m, self.now) <= BACKLOG
        ]
        given_up = {m.seq for m in meant if self._is_behind_given_up(m)}
        outcomes = self.runner.run(act())
        assert {seq: str(each) for seq, each in outcomes.items()} == {
            m.seq: "outstanding" if m.seq in given_up else "purged" for m in meant
        }
        for message in meant:
            if message.seq not in given_up:
                self.model.take_out(message, "PURGED")

    def _is_behind_given_up(self, message: Message) -> bool:
        head = self.model.head(message)
        return head is not None and head.exhausted and head is not message and message.handed_out

    @precondition(lambda self: self.model.messages)
    @rule(data=st.data())
    def resend(self, data: st.DataObject) -> None:
        chosen = self.choose(data)

        async def act() -> Mapping[tuple[int, int], str]:
            ids = [(self.log.shard_id, message.seq) for message in chosen]
            asked = Resend(subscription=self.known, ids=ids, author=NOBODY, now=self.now)
            async with open_transaction(self.database) as session:
                return await resend(session, asked, self.log.attempt_ids)

        outcomes = self.runner.run(act())
        for message in chosen:
            states = self.model.states(message, self.now)
            [*_, state] = sorted(states)
            outcome = outcomes[self.log.shard_id, message.seq]
            if message.retracted:
                assert outcome == "retracted"
            elif state in ("OUTSTANDING", "EXHAUSTED"):
                assert outcome == "outstanding", (message, states)
            elif not message.matches:
                assert outcome == "filtered", (message, states)
            elif state in BACKLOG:
                assert outcome == "waiting", (message, states)
            elif states == {"EXPIRED"}:  # a claim may have let it go
                assert outcome in ("resent", "notRetained"), (message, states)
            else:
                assert outcome == "resent", (message, states)
            if outcome == "resent":
                message.start_over()
                message.redriven = True

    @precondition(lambda self: self._is_rare())
    @rule(data=st.data())
    def retract(self, data: st.DataObject) -> None:
        """Of a key nothing that is out: when the key goes on is not what this is about."""
        chosen = [m for m in self.choose(data) if not m.out or not m.key]

        async def act() -> dict[tuple[int, int], str]:
            ids = [(self.log.shard_id, message.seq) for message in chosen]
            async with open_transaction(self.database) as session:
                done = await retract(session, Asked(ids=ids, author=NOBODY, now=self.now))
            reported = done.states.get(self.log.subscription.name, {})
            return {id_: reported[id_] for id_ in ids if id_ in reported}

        reported = self.runner.run(act())
        for message in chosen:
            state = self.model.states(message, self.now)
            subscription_gauges = reported[self.log.shard_id, message.seq]
            if message.retracted:
                continue
            if state == {"OUTSTANDING"}:
                assert subscription_gauges == "outstanding", (message, state)
            elif state <= {"WAITING", "FILTERED", "BLOCKED", "RETRYING", "EXHAUSTED"}:
                expected = "returned" if message.attempts and message.handed_out else "neverHandedOut"
                assert subscription_gauges == expected, (message, state)
            elif state != {"EXPIRED"}:
                assert subscription_gauges == "settled", (message, state)
            self.model.retract(message, state)

    # --- dead letters -------------------------------------------------------------------------------------------

    @precondition(lambda self: any(m.exhausted for m in self.messages))
    @rule()
    def forward(self) -> None:
        self._forward()

    def _forward(self) -> None:
        async def act() -> int:
            policy = DeadLetterPolicy(
                dead_letter_topic=self.dead_letters.dead.topic.name, max_delivery_attempts=100
            )
            subscription = replace(
                self.known,
                dead_letter_policy=policy,
                dead_letter_topic_id=self.dead_letters.dead.topic.topic_id,
            )
            async with self.log.session() as session:
                done = await forward_dead_letters(
                    session,
                    subscription=subscription,
                    shard_id=self.log.shard_id,
                    prepare=packed_for(self.dead_letters.dead.topic),
                    now=self.now,
                )
            assert not done.more
            return done.count

        given_up = [m for m in self.messages if m.exhausted]
        assert self.runner.run(act()) == len(given_up)
        for message in given_up:
            message.settle("DEAD_LETTERED")
            message.dead_letters.append(message.seq)

    @precondition(lambda self: any(m.dead_letters for m in self.messages))
    @rule()
    def redrive(self) -> None:
        """All letters are as nobody had them yet."""
        self._redrive()

    @precondition(lambda self: self._is_rare())
    @rule(tried=st.integers(0, 8))
    def redrive_what_has_expired_since_a_seek(self, tried: int) -> None:
        """Ahead of the cursor, or in the rows of what was delivered again."""
        seqs = self._publish("", [True, True], 13)
        self._deliver(200)
        for delivery in self.deliveries:
            ordinals = [n for n, message in enumerate(delivery.messages) if message.seq in seqs]
            if ordinals:
                assert not self._modify(delivery, ordinals, self.now, "exhausted")
                self.model.nack([self.model.messages[delivery.messages[n].seq] for n in ordinals], exhausted=True)
        self._forward()
        self._seek(min(m.published for m in self.messages), self.now - self.retention)
        if tried:
            self._deliver(tried)
        self.now += 14 * SECOND
        self._redrive()

    def _redrive(self) -> None:
        async def act() -> Mapping[int, str]:
            chosen = {"max_messages": 500, "now": self.now}
            return (await self.dead_letters.step(**chosen)).outcomes

        outcomes = {seq: str(each) for seq, each in self.runner.run(act()).items()}
        meant = [m for m in self.messages if m.dead_letters]
        assert outcomes.keys() == {m.seq for m in meant}
        for message in meant:
            states = self.model.states(message, self.now)
            if outcomes[message.seq] == "outstanding":  # its dead letter stays, for the consumer may not ack it
                assert states == {"OUTSTANDING"}, (message, states)
                assert self._is_past(message)
                continue
            message.dead_letters.clear()
            if states <= BACKLOG | {"FILTERED"}:
                assert outcomes[message.seq] == "alreadyThere", (message, states)
                assert states == {"EXHAUSTED"} or not self._is_past(message), (message, states)
            else:
                assert outcomes[message.seq] == "redriven", (message, states)
                message.start_over()
                message.redriven = True

    # --- what is reported ---------------------------------------------------------------------------------------

    @property
    def reports(self) -> Reports:
        return Reports(self.log, self.known, self.now)

    def _begun(self) -> bool:
        return hasattr(self, "log") and bool(self.model.messages)

    def _some(self) -> Iterator[Message]:
        """Other messages after each step."""
        for _ in range(2):
            self.replica_reads += 1
            yield self.messages[self.replica_reads % len(self.messages)]

    @invariant()
    def each_message_is_in_the_state_of_the_model(self) -> None:
        if not self._begun():
            return
        for message in self._some():
            state, attempts = self.runner.run(self.reports.of_message(message.seq))
            assert state in self.model.states(message, self.now), (state, message)
            if attempts is not None:
                assert attempts == message.attempts, message

    @invariant()
    def the_list_has_the_backlog(self) -> None:
        if not self._begun():
            return
        backlog = {
            m.seq: (next(iter(self.model.states(m, self.now))), m.attempts)
            for m in self.messages
            if self.model.states(m, self.now) <= BACKLOG and not m.retracted
        }
        assert self.runner.run(self.reports.listed()) == backlog

    @invariant()
    def operations_see_the_state_of_the_model(self) -> None:
        """What only records tell is settled."""
        if not self._begun():
            return
        backlog, messages = self.runner.run(self.reports.held())
        for logged in messages:
            states = self.model.states(self.model.messages[logged.seq], self.now)
            expected = {state if state in UNRECORDED else "SETTLED" for state in states}
            state = backlog.state(logged, self.now)
            assert state in expected or (states == {"EXPIRED"} and state == "SETTLED"), (state, states, logged.seq)

    @invariant()
    def lag_counts_the_backlog(self) -> None:
        """It counts what expired or was retracted until a claim passes it: it does not look at single messages.

        Nor does it ask the filter about what waits for an ordering key.
        """
        if not self._begun():
            return
        out = self.model.in_state(self.now, "OUTSTANDING")
        backlog = self.model.in_state(self.now, *BACKLOG)
        unsure = self.model.in_state(self.now, "EXPIRED") | {m.seq for m in self.messages if m.retracted}
        unsure |= {m.seq for m in self.messages if m.key and not m.matches}
        past = {m.seq for m in self.messages if self.model.is_past(m, self.now)}
        lag, position = self.runner.run(self.reports.lag()), self.runner.run(self.reports.position())
        assert lag.outstanding == len(out)
        assert len(backlog) <= lag.claimed + lag.wanted + lag.held <= len(backlog | unsure)
        assert len(backlog - past) <= position.undelivered <= len(backlog | unsure)

    def _is_past(self, message: Message) -> bool:
        return not message.redriven and self.model.is_past(message, self.now)

    @invariant()
    def previews_count_the_backlog(self) -> None:
        if not self._begun():
            return
        backlog = {m.seq for m in self.messages if not m.retracted and self.model.states(m, self.now) <= BACKLOG}
        assert self.runner.run(self.reports.purgeable()) == len(backlog)
        would_come = {seq for seq in backlog if not self._is_past(self.model.messages[seq])}
        assert self.runner.run(self.reports.preview_of_seek_to_end()).skipped.messages == len(would_come)
        dead_letters = [m for m in self.messages if m.dead_letters]
        counted = self.runner.run(self.reports.dead_letters(self.dead_letters.dead.subscription.subscription_id))
        assert counted == len(dead_letters)

    @invariant()
    def flow_control_counts_what_is_outstanding(self) -> None:
        if not self._begun() or not self.deliveries:
            return
        expected: dict[tuple[int, int], set[int]] = {}
        for seq in self.model.in_state(self.now, "OUTSTANDING"):
            ack_id = self.model.messages[seq].ack_id
            if ack_id is not None:
                expected.setdefault((self.log.shard_id, ack_id[0]), set()).add(ack_id[1])
        found, count = self.runner.run(self.reports.still_out(self.deliveries))
        assert found == expected
        assert count == sum(map(len, expected.values()))


class DeliveryStatesOfKeys(DeliveryStates):
    ordered = True
    keys = ("a", "a", "b", "")


class DeliveryStatesPastTheirTime(DeliveryStates):
    retention = 25 * SECOND


MACHINES = [DeliveryStates, DeliveryStatesOfKeys, DeliveryStatesPastTheirTime]


@pytest.mark.parametrize("machine", MACHINES)
def test_every_report_of_a_delivery_state_is_what_the_model_says(
    database_url: str, machine: type[DeliveryStates]
) -> None:
    with on_database(machine, database_url) as bound:
        run_state_machine_as_test(bound, settings=short_steps(12))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("machine", MACHINES)
def test_every_report_of_a_delivery_state_is_what_the_model_says_for_longer(
    database_url: str, machine: type[DeliveryStates]
) -> None:
    with on_database(machine, database_url) as bound:
        run_state_machine_as_test(bound, settings=short_steps(500))
