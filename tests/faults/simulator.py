"""Histories of a broker that does everything right, with retries, expiries, nacks, seeks and lost answers.

The broker is a few dictionaries, time is a number: what is checked with it is the checker.  Every operation takes
effect at one moment, between its begin and its end; without an answer, perhaps never.
"""

import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from tests.faults import simulated_acts
from tests.faults.checks.view import DEAD_LETTER_COUNT, DEAD_LETTER_ID, DEAD_LETTER_SOURCE
from tests.faults.history import (
    Delivery,
    Fault,
    History,
    Position,
    Publish,
    Receive,
    Seek,
    Settle,
    Snapshot,
    Subscription,
    Timeline,
)
from tests.faults.operation import Outcome
from tests.faults.simulated_acts import MAX_ATTEMPTS, Acts
from tests.faults.simulated_state import Lease, Message, State

SUBSCRIPTIONS = (
    Subscription("plain", "topic"),
    Subscription("rare", "topic", wanted={"kind": "rare"}),
    Subscription("ordered", "topic", ordered=True),
    Subscription("exact", "topic", exactly_once=True, journal="ALL"),
    Subscription("both", "topic", ordered=True, exactly_once=True),
    Subscription("dead", "topic", max_attempts=MAX_ATTEMPTS, dead_letter_topic="letters", journal="ALL"),
    Subscription("pushed", "topic", journal="ALL"),
    Subscription("sampled", "topic", journal="ALL", journal_share=0.5),
    Subscription("failing", "topic", max_attempts=MAX_ATTEMPTS, dead_letter_topic="letters", journal="FAILURES"),
    Subscription("letters", "letters"),
    Subscription("shaped", "shaped"),
    Subscription("events", "events", of_events=True),
)
_BESIDE = ("rare", "exact")  # those that acts touch
_LOST = 0.06  # of all answers
# Acks and new deadlines; where more is given up, more comes back.
_CHANGES = {False: (None, None, None, 0, 0, 1, 15), True: (None, 0, 0, 0, 0, 0)}


class Simulator:
    """Clients and a broker, all of them in one loop of random steps."""

    def __init__(self, seed: int, *, acting: bool = False) -> None:
        """`acting`: operators redrive, discard, purge and copy, rather than seek."""
        self.dice = random.Random(seed)
        subscriptions: Sequence[Subscription] = SUBSCRIPTIONS
        if acting:
            beside = (each for each in SUBSCRIPTIONS if each.name in _BESIDE)
            subscriptions = (*beside, *simulated_acts.SUBSCRIPTIONS)
        self.history = History(subscriptions)
        self.states = {s.name: State(s) for s in subscriptions}
        self._received = [name for name in self.states if name != simulated_acts.PILE]
        self._acting = acting
        self.now = 100.0
        self._next = {"topic": [7 * 10**15, 8 * 10**15], "letters": [9 * 10**15]}
        self._next |= {"shaped": [10 * 10**15], "events": [11 * 10**15], "pile": [12 * 10**15]}
        self._next["copies"] = [13 * 10**15, 14 * 10**15]
        self._count = self._events = 0
        self._dead_letters: Counter[str] = Counter()  # by the subscription that gave them up
        self._held: list[tuple[float, float, str, list[Delivery]]] = []  # until when, since when, and whose
        self._acts = Acts(self)
        self._free_at = dict.fromkeys(("publisher-1", "publisher-2"), 0.0)

    def run(self, steps: int = 250) -> History:
        for _ in range(2 * steps if self._acting else steps):
            self.now += self.dice.choice((0.1, 0.3, 1.0))
            self._let_go()
            clients = (self._publish, self._receive, self._settle, self._hold, self._operate)
            self.dice.choices(clients, (3, 6, 8, 0.6, 1.0 if self._acting else 0.3))[0]()
        self._drain()
        self.history.operations.sort(key=lambda operation: operation.ended)
        return self.history

    # --- clients ---------------------------------------------------------------------------------------------

    def times(self, not_before: float = 0.0) -> dict[str, Any]:
        began = max(not_before, self.now - self.dice.uniform(0, 0.4))
        return {"began": began, "ended": self.now + self.dice.uniform(0.01, 0.4)}

    def answer(self, draining: bool = False) -> tuple[Outcome, bool]:
        """The outcome, and whether it takes effect."""
        if draining or self.dice.random() >= _LOST:
            return "ok", True
        return "unknown", self.dice.random() < 0.5

    def _publish(self) -> None:
        who = self.dice.choice(list(self._free_at))
        if self._free_at[who] > self.now:
            return
        outcome, happens = self.answer()
        key = self.dice.choice(("", f"{who}-a", f"{who}-b"))
        attributes = {"kind": self.dice.choice(("common", "rare"))}
        count = self.dice.choice((1, 1, 3))
        texts = [f"text-{self._count + n}" for n in range(count)]
        self._count += count
        topic = self.dice.choice(("topic",) * 9 + ("shaped",))
        breaks = topic == "shaped" and self.dice.random() < 0.5
        if breaks:
            outcome, happens = "failed" if outcome == "ok" else outcome, False
        ids = self.store(topic, texts, key, attributes) if happens else []
        publish = Publish(
            who=who,
            **self.times(self._free_at[who]),
            outcome=outcome,
            topic=topic,
            texts=texts,
            key=key,
            attributes=attributes,
            ids=ids if outcome == "ok" else [],
            breaks_schema=breaks,
        )
        self._free_at[who] = publish.ended + 0.001
        self.history.add(publish)

    def _receive(self, name: str | None = None, *, draining: bool = False) -> list[str]:
        """The ack ids of what came."""
        state = self.states[name or self.dice.choice(self._received)]
        self._forward_dead_letters(state)
        if state.subscription.name == "pushed":
            return self._push(state, draining)
        outcome, happens = self.answer(draining)
        deliveries = self._claim(state) if happens else []
        times = self.times()
        received = Receive(
            who="puller",
            **times,
            outcome=outcome,
            subscription=state.subscription.name,
            how=self.dice.choice(("pull", "stream")),
            deliveries=deliveries if outcome == "ok" else [],
        )
        self.history.add(received)
        ack_ids = [delivery.ack_id for delivery in received.deliveries]
        if ack_ids:
            state.received.append((times["ended"], ack_ids))
        return ack_ids

    def _hold(self) -> None:
        """The network holds a response of a stream for some time."""
        state = self.states[self.dice.choice([name for name in self._received if name != "pushed"])]
        self._forward_dead_letters(state)
        if deliveries := self._claim(state):
            until = self.now + self.dice.uniform(1, 14)
            self._held.append((until, self.now - 0.1, state.subscription.name, deliveries))

    def _let_go(self) -> None:
        """What was held comes, close behind the response before, as the client sees it."""
        for held in [held for held in self._held if held[0] <= self.now]:
            self._held.remove(held)
            _, since, name, deliveries = held
            times = self.times(self.now - 0.2)
            self.history.add(
                Fault(who="network", began=since, ended=self.now, name="hold", excuses=False, delays=True)
            )
            self.history.add(
                Receive(who="streamer", **times, subscription=name, how="stream", deliveries=deliveries)
            )
            self.states[name].received.append((times["ended"], [delivery.ack_id for delivery in deliveries]))

    def _push(self, state: State, draining: bool) -> list[str]:
        status = 204 if draining else self.dice.choice((204, 204, 500))
        for delivery in self._claim(state, most=1000 if draining else 1):
            lease, message = state.leases[delivery.ack_id]
            message.acked = status == 204
            message.report(self.now, *(("ACKED", "204 in 5 ms") if message.acked else ("NACKED", f"push {status}")))
            lease.until = 0.0
            self.history.add(
                Receive(
                    who="endpoint",
                    began=self.now,
                    ended=self.now + 0.05,
                    subscription="pushed",
                    how="push",
                    deliveries=[delivery],
                    status=status,
                )
            )
        return []  # there is nothing to settle

    def _settle(self) -> None:
        state = self.states[self.dice.choice(self._received)]
        if not state.received:
            return
        ended, ack_ids = self.dice.choice(state.received[-5:])
        if ended >= self.now:
            return
        some = self.dice.sample(ack_ids, self.dice.randint(1, len(ack_ids)))
        self._settle_these(state, some, self.dice.choice(_CHANGES[state.subscription.redriven]), ended)

    def _settle_these(
        self, state: State, ack_ids: list[str], seconds: float | None, after: float, *, draining: bool = False
    ) -> None:
        outcome, happens = self.answer(draining)
        refused: dict[str, str] = {}
        if happens:
            for ack_id in ack_ids:
                reason = self._apply(state, ack_id, seconds)
                if reason and state.subscription.exactly_once:
                    refused[ack_id] = reason
        self.history.add(
            Settle(
                who="puller",
                **self.times(after + 0.001),
                outcome=outcome,
                subscription=state.subscription.name,
                ack_ids=ack_ids,
                seconds=seconds,
                refused=refused if outcome == "ok" else {},
            )
        )

    def _operate(self) -> None:
        if self._acting:
            self._acts.act()
        else:
            self._seek()

    def _seek(self) -> None:
        """Take a snapshot, or go back to one."""
        state = self.states["plain"]
        outcome, happens = self.answer()
        times = self.times()
        self.now = times["ended"]  # a quiet moment
        if not state.snapshots or self.dice.random() < 0.5:
            name = f"snapshot-{self._count}-{len(state.snapshots)}"
            state.snapshots[name] = {m.id for m in state.messages if m.acked}
            self.history.add(Snapshot(who="operator", **times, subscription="plain", name=name))
            return
        name = self.dice.choice(list(state.snapshots))
        if happens:
            for message in state.messages:
                message.acked = message.id in state.snapshots[name]
            state.leases.clear()
        self.history.add(Seek(who="operator", **times, outcome=outcome, subscription="plain", snapshot=name))

    def _drain(self) -> None:
        for _ in range(40):
            self.now += 5.0
            self._let_go()
            if self._acting:
                self._acts.redrive_all()
            for name in self._received:
                state = self.states[name]
                for _ in range(20):
                    self.now += 0.5
                    ack_ids = self._receive(name, draining=True)
                    if not ack_ids:
                        break
                    self.now = self.history.operations[-1].ended + 0.5
                    self._settle_these(state, ack_ids, None, self.now - 0.4, draining=True)
        for name, state in self.states.items():
            left = [message for message in state.messages if not message.acked]
            position = Position(
                who="drain", **self.times(), subscription=name, undelivered=len(left), outstanding=0, final=True
            )
            self.history.add(position)
            for message in state.messages if state.subscription.journal else ():
                reported = [
                    each for each in message.reported if state.subscription.includes(each.event, each.attempt)
                ]
                if message.id % 2 and state.subscription.journal_share < 1.0:
                    reported = []
                self.history.add(
                    Timeline(who="drain", **self.times(), subscription=name, id=message.id, reported=reported)
                )

    # --- the broker --------------------------------------------------------------------------------------------

    def store(self, topic: str, texts: list[str], key: str, attributes: dict[str, str]) -> list[int]:
        heads = self._next[topic]
        shard = crc32(key.encode()) % len(heads) if key else self.dice.randrange(len(heads))
        ids = [heads[shard] + n + 1 for n in range(len(texts))]
        heads[shard] += len(texts)
        for state in self.states.values():
            wanted = state.subscription.wanted.items() <= attributes.items()
            if state.subscription.topic == topic and wanted:
                state.messages += [Message(i, text, key, attributes) for i, text in zip(ids, texts, strict=True)]
        return ids

    def _claim(self, state: State, most: int | None = None) -> list[Delivery]:
        deliveries: list[Delivery] = []
        for messages in self._due(state, most or self.dice.choice((1, 2, 10))):
            lease = Lease(messages, self.now + state.subscription.ack_deadline)
            for message in messages:
                message.attempts += 1
                message.report(self.now, "HANDED_OUT")
                ack_id = f"{state.subscription.name}-{message.id}-{message.attempts}-{self.dice.random()}"
                state.leases[ack_id] = (lease, message)
                shown = message.attempts if state.subscription.max_attempts else None
                deliveries.append(
                    Delivery(message.id, message.text, ack_id, message.key, shown, dict(message.attributes))
                )
        return deliveries

    def _due(self, state: State, most: int) -> list[list[Message]]:
        """What may go out now: messages, and runs of keys."""
        runs: dict[str, list[Message]] = {}
        alone: list[list[Message]] = []
        held: set[str] = set()
        for message in state.messages:
            if message.acked or len(alone) + sum(map(len, runs.values())) >= most:
                continue
            if not (state.subscription.ordered and message.key):
                if state.holder(message, self.now) is None:
                    alone.append([message])
            elif message.key not in held and state.holder(message, self.now) is None:
                runs.setdefault(message.key, []).append(message)
            else:
                held.add(message.key)
        return alone + list(runs.values())

    def _apply(self, state: State, ack_id: str, seconds: float | None) -> str | None:
        """Ack or move a deadline; why not, if not."""
        if ack_id not in state.leases:
            return "gone"
        lease, message = state.leases[ack_id]
        latest = [key for key, (_, other) in state.leases.items() if other is message][-1]
        exactly_once = state.subscription.exactly_once
        if seconds is None and message.id in lease.acked:
            return None
        if latest != ack_id or message.acked or (exactly_once and lease.until <= self.now):
            return "stale"
        if seconds is not None:
            lease.until = self.now + seconds
            message.report(self.now, "EXTENDED" if seconds else "NACKED")
            return None
        earlier = lease.messages[: lease.messages.index(message)]
        if exactly_once and any(other.id not in lease.acked for other in earlier):
            return "unordered"
        if lease.until <= self.now and len(lease.messages) > 1:
            return "stale"
        lease.acked.add(message.id)
        message.report(self.now, "ACKED")
        for other in lease.messages:  # an ack counts once all earlier ones are acked
            if other.id not in lease.acked:
                break
            other.acked = True
        return None

    def _forward_dead_letters(self, state: State) -> None:
        for message in state.messages:
            used_up = state.subscription.max_attempts == message.attempts
            if used_up and not message.acked and state.holder(message, self.now) is None:
                message.acked = True
                message.report(self.now, "DEAD_LETTERED", "nack")
                self._tell_operators(state.subscription.name)
                reported = {
                    DEAD_LETTER_SOURCE: state.subscription.name,
                    DEAD_LETTER_COUNT: str(message.attempts),
                    DEAD_LETTER_ID: str(message.id),
                }
                self.store(
                    state.subscription.dead_letter_topic or "",
                    [message.text],
                    message.key,
                    message.attributes | reported,
                )

    def _tell_operators(self, name: str) -> None:
        """Of the first dead letter, the tenth, and so on."""
        before = self._dead_letters[name]
        self._dead_letters[name] = count = before + 1
        if before and len(str(before)) == len(str(count)):
            return
        self._events += 1
        kind = "growing" if before else "first"
        reported = {
            "ce-id": f"{self._events}",
            "ce-type": f"pubsub.deadLetters.{kind}",
            "ce-subject": f"p/s/{name}",
        }
        self.store("events", [json.dumps({"n": self._events, "count": count})], "", reported)
