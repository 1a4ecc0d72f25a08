"""A model of how messages stand with one subscription, which knows nothing of cursors, rows or bits.

A message was never handed out, is out or came back, or is settled.  The messages of an ordering key are a queue:
its head is the first of them that was handed out and is not settled, and blocks the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from broker.model.delivery import Delivery

FOR_EVER = datetime.max.replace(tzinfo=UTC)
BACKLOG = frozenset({"WAITING", "OUTSTANDING", "RETRYING", "BLOCKED", "EXHAUSTED"})


@dataclass(repr=False)
class Message:
    """`handed_out`: it is in the run of a response, and not settled; `out`: with a consumer, until `deadline`.

    `acked`: its ack came before that of an earlier message of its ordering key, and does not count yet.
    `matches`: the filter of its publish time.  `redriven`: it is delivered however old it is.
    """

    seq: int
    key: str
    published: datetime
    until: datetime
    big: bool
    matches: bool
    attempts: int = 0
    handed_out: bool = False
    out: bool = False
    acked: bool = False
    exhausted: bool = False
    redriven: bool = False
    retracted: bool = False
    deadline: datetime = FOR_EVER
    ack_id: tuple[int, int] | None = None
    settled: frozenset[str] = frozenset()  # how that may be told; empty: it is not
    dead_letters: list[int] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"{self.key}{self.seq}"

    def settle(self, *how: str) -> None:
        self.settled = frozenset(how)
        self.handed_out = self.out = self.acked = self.exhausted = self.redriven = False
        self.ack_id = None

    def come_back(self) -> None:
        self.out = self.acked = False

    def start_over(self) -> None:
        """It is to be delivered as if nobody had ever had it."""
        self.settle()
        self.attempts = 0


@dataclass
class Model:
    ordered: bool
    retention: timedelta
    messages: dict[int, Message] = field(default_factory=dict)

    def queue(self, key: str) -> list[Message]:
        """What was handed out of a key and is not settled."""
        return [m for m in self.messages.values() if m.key == key and m.handed_out and not m.settled]

    def head(self, message: Message) -> Message | None:
        if not self.ordered or not message.key:
            return None
        return next(iter(self.queue(message.key)), None)

    def is_past(self, message: Message, now: datetime) -> bool:
        return message.published < now - self.retention or message.until <= now

    def states(self, message: Message, now: datetime) -> frozenset[str]:
        """Returns the states that may be reported: one, unless it depends on what the model does not know."""
        if message.settled:
            return message.settled
        if message.out and not message.acked and message.deadline > now:
            return frozenset({"OUTSTANDING"})
        if message.retracted:
            return frozenset({"RETRACTED"})
        if message.exhausted:
            return frozenset({"EXHAUSTED"})
        if not message.handed_out and not message.matches:
            return frozenset({"FILTERED"})
        if not message.redriven and self.is_past(message, now):
            return frozenset({"EXPIRED"})
        head = self.head(message)
        if head not in (None, message) and (message.acked or not message.out):
            return frozenset({"BLOCKED"})
        return frozenset({"RETRYING" if message.attempts else "WAITING"})

    def in_state(self, now: datetime, *states: str) -> set[int]:
        return {seq for seq, message in self.messages.items() if self.states(message, now) & {*states}}

    def deliver(self, delivery: Delivery, messages: Iterable[Message], deadline: datetime) -> None:
        """These went out in one response; what else of a key was in a run has come back."""
        given = list(messages)
        for ordinal, message in enumerate(given):
            message.attempts += 1
            message.handed_out = message.out = True
            message.acked = False
            message.deadline, message.ack_id = deadline, (delivery.attempt_id, ordinal)
        if delivery.ordered:
            for other in self.queue(given[0].key):
                if other not in given:
                    other.come_back()

    def acknowledge(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self.head(message) is None:
                message.settle("SETTLED")
            else:
                message.acked = True
        for key in {m.key for m in self.messages.values() if m.acked}:
            self._settle_acked(key)

    def _settle_acked(self, key: str) -> None:
        """Acks count up to the first message that is not acked."""
        for message in self.queue(key):
            if not message.acked:
                break
            message.settle("SETTLED")

    def nack(self, messages: list[Message], *, exhausted: bool) -> None:
        """Of a key, all from the first of them on come back; only its head can be given up."""
        if self.head(messages[0]) is None:
            for message in messages:
                message.come_back()
                message.exhausted = exhausted
            return
        first = min(messages, key=lambda message: message.seq)
        is_head = first is self.head(first)
        if exhausted and not is_head:
            return
        for message in self.queue(first.key):
            if message.seq >= first.seq:
                message.come_back()
        first.exhausted = exhausted

    def move_deadline(self, messages: list[Message], deadline: datetime) -> None:
        """Of a key, all that is out has the deadline of its head."""
        if self.head(messages[0]) is None:
            for message in messages:
                message.deadline, message.out, message.exhausted = deadline, True, False
        elif self.first_unacked(messages[0]) in messages:
            for message in self.queue(messages[0].key):
                message.deadline = deadline

    def first_unacked(self, message: Message) -> Message | None:
        return next((m for m in self.queue(message.key) if not m.acked), None)

    def take_out(self, message: Message, *how: str) -> None:
        """It is dropped for good.  What was handed out of its key comes again, under other ack ids."""
        is_in_run = self.ordered and message.key and message.handed_out
        message.settle(*how)
        if is_in_run:
            self._settle_acked(message.key)
            for other in self.queue(message.key):
                other.come_back()
                other.exhausted = False
                other.ack_id = None

    def retract(self, message: Message, states: frozenset[str]) -> None:
        """A message that is outstanding remains so until its ack deadline."""
        message.retracted = True
        message.dead_letters.clear()
        if states == {"EXPIRED"}:
            message.settle("RETRACTED", "EXPIRED", "SETTLED")
        elif message.settled:
            message.settle("RETRACTED", "SETTLED", *message.settled)
        elif states != {"OUTSTANDING"}:
            message.settle("RETRACTED")

    def seek(self, time: datetime, replay_since: datetime | None, now: datetime) -> None:
        for message in self.messages.values():
            if message.retracted:
                message.settle(*(message.settled | {"SKIPPED"} if message.settled else {"RETRACTED"}))
                continue
            states = self.states(message, now)
            if message.published < time:
                if message.settled or states == {"FILTERED"}:
                    continue
                if states == {"EXPIRED"}:  # a claim may have let it go before
                    message.settle("EXPIRED", "SKIPPED")
                elif message.key and self.ordered and not message.handed_out:
                    message.settle("SKIPPED", "SETTLED")  # behind the cursor, as one that waits for its key
                else:
                    message.settle("SKIPPED")
            elif replay_since is not None and message.published >= replay_since:
                message.start_over()
            elif not message.settled:
                redriven = message.redriven
                message.start_over()
                message.redriven = redriven
