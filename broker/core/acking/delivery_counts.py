"""Counts deliveries, by subscription: messages that were delivered, acknowledged, given back or expired."""

from collections.abc import Iterable, Sequence, Set
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from broker.core.acking.delivery_attempts import AckedInOrder
from broker.core.process.attempt_ids import handed_out_microseconds, microseconds
from broker.model.ack_id import AttemptName, MessageNames
from broker.model.deadline_change import DeadlineChange
from broker.model.delivery import Delivery
from broker.model.message_id import id_of
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import ACK_LATENCY, ACKED, DELIVERY_LAG, NACKED, SENT

if TYPE_CHECKING:
    from broker.observability.tracing import Tracing

_MICROSECOND = timedelta(microseconds=1)


class DeliveryCounts:
    """The delivery counters of one process."""

    def __init__(self, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()

    def sent(self, name: str, deliveries: Sequence[Delivery], now: datetime) -> None:
        """Responses were handed to a client of the subscription of this name."""
        counts = self.counters.subscription(name)
        for delivery in deliveries:
            counts[SENT] += len(delivery.messages)
            if delivery.attempt_number == 1:
                lag = (now - delivery.messages[0].publish_time) // _MICROSECOND
                DELIVERY_LAG.observe(counts, max(lag, 0))
        if self.counters.tracing is not None:
            _trace(self.counters.tracing, name, deliveries, microseconds(now))

    def acked(self, acks: Iterable[tuple[AttemptName, Set[int]]], missing: MessageNames, now: datetime) -> None:
        """Counts acknowledged messages, without those (`missing`) that were no longer out."""
        at = microseconds(now)
        of_id, tracing = self.counters.of_id, self.counters.tracing
        for attempt, ordinals in acks:
            count = len(ordinals)
            if tracing is not None:
                tracing.acked((attempt.shard_id, attempt.attempt_id), ordinals - missing.get(attempt, set()))
            if missing:
                count -= len(missing.get(attempt, ()))
            if count:
                counts = of_id(attempt.subscription_id)
                counts[ACKED] += count
                ACK_LATENCY.observe(counts, max(at - handed_out_microseconds(attempt.attempt_id), 0), count)

    def acked_in_order(
        self,
        acks: Iterable[tuple[AttemptName, Set[int]]],
        tries: Sequence[AckedInOrder],
        again: Iterable[AttemptName],
        now: datetime,
    ) -> None:
        """Counts messages of attempts that hold an ordering key, as `acked` does.

        `tries`: the outcome for all of them, then that for some, which were tried `again`.
        """
        missing = dict(tries[0].stale)
        for attempt in again:
            missing[attempt] = tries[1].stale.get(attempt, set())
        for tried in tries:
            for attempt, ordinals in tried.out_of_order.items():
                missing[attempt] = missing.get(attempt, set()) | ordinals
        self.acked(acks, missing, now)

    def nacked(self, changes: Iterable[DeadlineChange], stale: MessageNames) -> None:
        """Deadlines were changed, but for those of messages that were not out any more."""
        for change in changes:
            if change.status != "delivering":
                counts = self.counters.of_id(change.attempt.subscription_id)
                counts[NACKED] += len(change.ordinals) - len(change.ordinals & stale.get(change.attempt, set()))


def _trace(tracing: "Tracing", name: str, deliveries: Iterable[Delivery], now: int) -> None:
    for delivery in deliveries:
        shard_id = delivery.shard_id
        messages = [(id_of(shard_id, message), message.attributes) for message in delivery.messages]
        waited = max(now - handed_out_microseconds(delivery.attempt_id), 0) / 1e6
        tracing.handed_out(name, (shard_id, delivery.attempt_id), messages, waited)
