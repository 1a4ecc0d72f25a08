"""A history as the checks look at it: publishes by text, and by subscription what was received and settled.

What is certain and what is only possible are told apart throughout; a check finds fault with what is certain.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tests.faults.history import (
    Copy,
    Delivery,
    Discard,
    Fault,
    History,
    Position,
    Publish,
    Purge,
    Receive,
    Redrive,
    Seek,
    Settle,
    Snapshot,
    Subscription,
    Timeline,
)
from tests.faults.operation import Operation

LATE_SECONDS = 25.0  # after the end of a call without an answer, within which a stopped process may still do it
READ_LATE_SECONDS = 1.0  # after a response has come, within which a client has read it
DELAYED_SECONDS = 2.0  # after a fault that delays responses, in which the last of them come
SUCCESSES = frozenset({102, 200, 201, 202, 204})  # what a push endpoint acks with
DEAD_LETTER_SOURCE = "CloudPubSubDeadLetterSourceSubscription"
DEAD_LETTER_COUNT = "CloudPubSubDeadLetterSourceDeliveryCount"
DEAD_LETTER_ID = "broker-source-message-id"
DEAD_LETTER_REASON = "broker-dead-letter-reason"
DEAD_LETTER_REASONS = re.compile("nack|deadline|reject|unknown|push (timeout|unreachable|digest|[1-9][0-9][0-9])")
DEAD_LETTER_MARKS = ("CloudPubSubDeadLetterSource", "broker-")  # all attributes that forwarding adds begin so


@dataclass(slots=True, eq=False)
class Receipt:
    """One message of one response.  It was handed out between `since` and `received`."""

    number: int  # of the operation
    receive: Receive
    delivery: Delivery
    began: float  # of the receive, and no later than it can have been handed out
    since: float
    settles: list[tuple[int, Settle]] = field(default_factory=list)  # that name it, by the time they began

    @property
    def received(self) -> float:
        """When the client had it: at the latest it was handed out then."""
        return self.receive.began if self.receive.how == "push" else self.receive.ended

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def possible_acks(self) -> Iterator[tuple[int, float]]:
        """Number and beginning of what may have acked it."""
        if self.receive.how == "push":
            if self.receive.status in SUCCESSES:
                yield self.number, self.receive.ended
            return
        for number, settle in self.settles:
            if settle.seconds is None and settle.outcome != "failed" and self.delivery.ack_id not in settle.refused:
                yield number, settle.began

    def acked_by(self, settle: Settle) -> bool:
        """The answer said that it is acked."""
        return settle.seconds is None and settle.outcome == "ok" and self.delivery.ack_id not in settle.refused


@dataclass(frozen=True, slots=True)
class SeekWindow:
    """A seek happened between `began` and `until`, if it happened (`sure`); so was its snapshot taken."""

    number: int
    began: float
    until: float
    sure: bool
    snapshot_began: float
    snapshot_ended: float


class SubscriptionView:
    """What the receivers of one subscription did and saw."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.name = subscription.name
        self.receives: list[tuple[int, Receive]] = []  # that brought something, by time
        self.receipts: dict[int, list[Receipt]] = defaultdict(list)  # by message id, by time
        self.lost: list[tuple[float, float]] = []  # when receives got no answer: what they were to bring may be out
        self.seeks: list[SeekWindow] = []
        self.positions: list[tuple[int, Position]] = []
        self.by_ack_id: dict[str, Receipt] = {}
        self.timelines: list[tuple[int, Timeline]] = []
        self.redrives: list[tuple[int, Redrive]] = []
        self.purges: list[tuple[int, Purge]] = []
        self.discards: list[tuple[int, Discard]] = []

    def wants(self, publish: Publish) -> bool:
        """It is of this topic, and the filter matches."""
        wanted = self.subscription.wanted.items() <= publish.attributes.items()
        return wanted and publish.topic == self.subscription.topic

    def texts(self) -> dict[str, int]:
        """Of all messages received, with an operation that brought each."""
        return {receipts[0].delivery.text: receipts[0].number for receipts in self.receipts.values()}

    def may_be_purged(self, publish: Publish) -> bool:
        """By a purge that may have been made after it was published."""
        return any(publish.began <= ended_late(purge) for _, purge in self.purges)

    def redrives_between(self, began: float, ended: float) -> list[Redrive]:
        """Those that may have brought something back then."""
        return [redrive for _, redrive in self.redrives if redrive.began <= ended and redrive.ended >= began]

    def seeks_between(self, began: float, ended: float) -> list[SeekWindow]:
        """The seeks that may have happened then."""
        return [seek for seek in self.seeks if seek.began <= ended and seek.until >= began]

    def _add(
        self, number: int, receive: Receive, began: float, published: Mapping[str, tuple[int, Publish]]
    ) -> None:
        if receive.outcome != "ok":
            self.lost.append((began, receive.ended + LATE_SECONDS))
            return
        if receive.deliveries:
            self.receives.append((number, receive))
        for delivery in receive.deliveries:
            of = published.get(delivery.text)
            since = of[1].began if of else 0.0
            if receive.how != "push":  # which is sent some time after it was handed out
                since = max(since, began)
            receipt = Receipt(number, receive, delivery, began, since)
            self.receipts[delivery.id].append(receipt)
            self.by_ack_id[delivery.ack_id] = receipt

    def _settle(self, number: int, settle: Settle) -> None:
        for ack_id in settle.ack_ids:
            if (receipt := self.by_ack_id.get(ack_id)) is not None:
                receipt.settles.append((number, settle))

    def _sort(self) -> None:
        self.receives.sort(key=lambda pair: (received_at(pair[1]), pair[0]))
        for receipts in self.receipts.values():
            receipts.sort(key=lambda receipt: (receipt.received, receipt.number))
            for receipt in receipts:
                receipt.settles.sort(key=lambda pair: pair[1].began)


def received_at(receive: Receive) -> float:
    return receive.began if receive.how == "push" else receive.ended


class View:
    """The whole history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.publishes = list(history.publishes())
        self.published: dict[str, tuple[int, Publish]] = {}  # by text
        self.answered: dict[str, int] = {}  # message id by text
        for number, publish in self.publishes:
            self.published |= dict.fromkeys(publish.texts, (number, publish))
            if publish.outcome == "ok":
                self.answered |= zip(publish.texts, publish.ids, strict=False)
        self.subscriptions = {s.name: SubscriptionView(s) for s in history.subscriptions}
        self.dead_letter_topics = {s.dead_letter_topic for s in history.subscriptions if s.dead_letter_topic}
        faults = [(n, o) for n, o in enumerate(history.operations) if isinstance(o, Fault)]
        self.faults = [(number, fault) for number, fault in faults if fault.excuses]
        self._delays = sorted((f for _, f in faults if f.delays), key=lambda fault: fault.ended, reverse=True)
        self.copies: list[tuple[int, Copy]] = []
        self._fill(history)
        self._fill_acts(history)

    def of_topic(self, topic: str) -> list[SubscriptionView]:
        return [view for view in self.subscriptions.values() if view.subscription.topic == topic]

    def plain_subscriptions(self) -> list[SubscriptionView]:
        """All but those of dead letters, events and copies: what publishers publish is meant for them."""
        terms = [view.subscription for view in self.subscriptions.values()]
        views = [self.subscriptions[each.name] for each in terms if not (each.of_events or each.copies)]
        return [view for view in views if view.subscription.topic not in self.dead_letter_topics]

    def dead_letters(self, source: SubscriptionView) -> dict[str, list[Receipt]]:
        """What a subscription gave up, by text: the dead letters as they were received."""
        dead_letters: dict[str, list[Receipt]] = defaultdict(list)
        topic = source.subscription.dead_letter_topic
        for view in self.of_topic(topic) if topic else ():
            for receipts in view.receipts.values():
                for receipt in receipts:
                    if receipt.delivery.attributes.get(DEAD_LETTER_SOURCE) == source.name:
                        dead_letters[receipt.delivery.text].append(receipt)
        return dead_letters

    def fault_between(self, began: float, ended: float) -> bool:
        return any(fault.began <= ended and fault.ended >= began for _, fault in self.faults)

    def _not_before(self, receive: Receive) -> float:
        """When a receive began: nothing that it brought was handed out before.

        Responses of a stream that a fault delays come at its end one close behind the other, handed out at any time
        since its begin; and if something else delayed the stream by then, since that began.
        """
        began = receive.began
        if receive.how == "stream":
            for delay in self._delays:
                if delay.began < began <= delay.ended + DELAYED_SECONDS:
                    began = delay.began - READ_LATE_SECONDS
        return began

    def _fill(self, history: History) -> None:
        snapshots: dict[str, list[Snapshot]] = defaultdict(list)
        settles: list[tuple[int, Settle]] = []
        seeks: list[tuple[int, Seek]] = []
        for number, operation in enumerate(history.operations):
            match operation:
                case Receive():
                    self.subscriptions[operation.subscription]._add(
                        number, operation, self._not_before(operation), self.published
                    )
                case Settle():
                    settles.append((number, operation))
                case Snapshot() if operation.outcome != "failed":
                    snapshots[operation.name].append(operation)
                case Seek() if operation.outcome != "failed":
                    seeks.append((number, operation))
                case Position() if operation.outcome == "ok":
                    self.subscriptions[operation.subscription].positions.append((number, operation))
        for number, settle in settles:
            self.subscriptions[settle.subscription]._settle(number, settle)
        for number, seek in seeks:
            window = _seek_window(number, seek, snapshots[seek.snapshot])
            self.subscriptions[seek.subscription].seeks.append(window)
        for view in self.subscriptions.values():
            view._sort()

    def _fill_acts(self, history: History) -> None:
        for number, operation in enumerate(history.operations):
            match operation:
                case Timeline():
                    self.subscriptions[operation.subscription].timelines.append((number, operation))
                case Redrive():
                    self.subscriptions[operation.subscription].redrives.append((number, operation))
                case Purge() if operation.outcome != "failed":
                    self.subscriptions[operation.subscription].purges.append((number, operation))
                case Discard() if operation.outcome != "failed":
                    self.subscriptions[operation.subscription].discards.append((number, operation))
                case Copy():
                    self.copies.append((number, operation))


def ended_late(operation: Operation) -> float:
    """By when it was done, if it was."""
    return operation.ended + (LATE_SECONDS if operation.outcome == "unknown" else 0.0)


def _seek_window(number: int, seek: Seek, taken: list[Snapshot]) -> SeekWindow:
    sure = seek.outcome == "ok"
    return SeekWindow(
        number,
        seek.began,
        seek.ended if sure else seek.ended + LATE_SECONDS,
        sure,
        min(snapshot.began for snapshot in taken),
        max(snapshot.ended for snapshot in taken),
    )


def overlapping(windows: Iterable[tuple[float, float]], began: float, ended: float) -> int:
    """How many of them touch this one."""
    return sum(1 for since, until in windows if since <= ended and until >= began)
