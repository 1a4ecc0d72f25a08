"""Small histories, told step by step."""

from typing import Any

from tests.faults.checker import check
from tests.faults.checks.view import DEAD_LETTER_COUNT, DEAD_LETTER_SOURCE
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
)

DEAD_LETTERS = Subscription("letters", "letters")


class Story:
    """A small history, told step by step; each operation takes a tenth of a second, at the time that is given."""

    def __init__(self, **terms: Any) -> None:
        """`terms`: of its one subscription, "sub" of "topic"."""
        self.history = History([Subscription("sub", "topic", **terms)])

    def publish(self, at: float, *ids: int, outcome: Any = "ok", **fields: Any) -> None:
        """Message n has the text "mn" (of n the last three digits), whether an answer told its id or not."""
        texts = [f"m{n % 1000}" for n in ids]
        reported = list(ids) if outcome == "ok" else []
        self._add(
            Publish(
                who="a",
                began=at,
                ended=at + 0.1,
                outcome=outcome,
                topic="topic",
                texts=texts,
                ids=reported,
                **fields,
            )
        )

    def receive(self, at: float, *ids: int, name: str = "sub", **fields: Any) -> None:
        """With ack ids such as "2@7.0": message 2, received at 7."""
        of_delivery = {k: fields.pop(k) for k in ("key", "attempt", "attributes") if k in fields}
        deliveries = [Delivery(n, f"m{n % 1000}", f"{n}@{at}", **of_delivery) for n in ids]
        self._add(Receive(who="p", began=at, ended=at + 0.1, subscription=name, deliveries=deliveries, **fields))

    def ack(self, at: float, *ack_ids: str, **fields: Any) -> None:
        self._add(Settle(who="p", began=at, ended=at + 0.1, subscription="sub", ack_ids=list(ack_ids), **fields))

    def nack(self, at: float, *ack_ids: str, **fields: Any) -> None:
        self.ack(at, *ack_ids, seconds=0, **fields)

    def snapshot(self, at: float, name: str = "s") -> None:
        self._add(Snapshot(who="o", began=at, ended=at + 0.1, subscription="sub", name=name))

    def seek(self, at: float, name: str = "s", **fields: Any) -> None:
        self._add(Seek(who="o", began=at, ended=at + 0.1, subscription="sub", snapshot=name, **fields))

    def fault(self, at: float, until: float, **fields: Any) -> None:
        self._add(Fault(who="f", began=at, ended=until, name="kill a worker", **fields))

    def dead_letter(self, at: float, message_id: int, **reported: str) -> None:
        """As "letters" received it; the id of its publish is `message_id` % 1000."""
        attributes = {DEAD_LETTER_SOURCE: "sub", DEAD_LETTER_COUNT: "5"} | reported
        self.receive(at, message_id, name="letters", attributes=attributes)

    def rules(self, left: int = 0, *, drained: bool = True) -> list[str]:
        """The rules that are found to be broken; `drained`: what still came at the end was acked then, perhaps."""
        acks = self._last_acks() if drained else []
        replica_reads = [
            Position(
                who="d", began=900, ended=901, subscription=s.name, undelivered=left, outstanding=0, final=True
            )
            for s in self.history.subscriptions
        ]
        reported = [*self._reported(), *acks, *replica_reads]
        return [violation.rule for violation in check(History(self.history.subscriptions, reported))]

    def _last_acks(self) -> list[Settle]:
        """Of all that was received, but for what used up its attempts."""
        most = {s.name: s.max_attempts for s in self.history.subscriptions}
        received = [
            (receive.subscription, delivery)
            for receive in self.history.operations
            if isinstance(receive, Receive)
            for delivery in receive.deliveries
        ]
        used_up = {(name, d.id) for name, d in received if d.attempt is not None and d.attempt == most[name]}
        return [
            Settle(who="d", began=890, ended=891, outcome="unknown", subscription=name, ack_ids=[delivery.ack_id])
            for name, delivery in received
            if (name, delivery.id) not in used_up
        ]

    def _reported(self) -> list[Any]:
        return sorted(self.history.operations, key=lambda operation: operation.ended)

    def _add(self, operation: Any) -> None:
        self.history.add(operation)


def reported(**terms: Any) -> Story:
    """Messages 1 and 2 were published, received and acked."""
    story = Story(**terms)
    story.publish(0, 1, 2)
    story.receive(1, 1, 2)
    story.ack(2, "1@1", "2@1")
    return story
