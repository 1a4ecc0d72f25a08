"""Redrive as an operation: shard after shard, in the order of the log (G2)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker.domain.errors import NotFound
from broker.domain.journal import Author
from broker.domain.message_id import message_id
from broker.domain.operation import MAX_TOLD, Operation, Step, step_size
from broker.domain.redrive import BACK, Outcome, from_json
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.attempt_ids import AttemptIds
from broker.store.log.redrive import Redrive, Redriven, redrive
from broker.store.log.scheduled_messages import id_seqs_at
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import REDRIVEN


class RedriveKind:
    """`progress`: the shard and the sequence where it goes on, and messages that were left alone (`skipped`)."""

    def __init__(
        self,
        clock: DatabaseClock,
        resources: ResourceCache,
        wake_ups: WakeUps,
        attempt_ids: AttemptIds,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._resources = resources
        self._wake_ups = wake_ups
        self._attempt_ids = attempt_ids
        self._counters = counters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Raises NotFound (the subscription was deleted), FailedPrecondition (it was detached), Aborted."""
        chosen = from_json(operation.request["chosen"])
        subscription = await self._resources.subscription(operation.target)
        if subscription.subscription_id != chosen.subscription_id:
            raise NotFound(f"The subscription was deleted, another has its name (resource={operation.target}).")
        later = [id_ for id_ in subscription.shard_ids if id_ >= operation.progress.get("shard", 0)]
        if not later:
            return Step(progress=operation.progress, ended=True)
        shard_id = min(later)
        begun = shard_id == operation.progress.get("shard")
        done = await redrive(
            connection,
            Redrive(
                chosen=chosen,
                shard_id=shard_id,
                from_seq=operation.progress["seq"] if begun else 0,
                max_messages=step_size(operation),
                ordered=subscription.enable_message_ordering,
                consumable=frozenset(operation.request["consumable"]),
                author=Author(principal=operation.started_by),
                now=self._clock.now(),
            ),
            self._attempt_ids,
        )
        failed = [(shard_id, seq) for seq, outcome in done.outcomes.items() if outcome not in BACK]
        names = await id_seqs_at(connection, failed[:MAX_TOLD])
        is_last = done.next_seq is None and len(later) == 1
        where = (
            {"shard": shard_id + 1, "seq": 0}
            if done.next_seq is None
            else {"shard": shard_id, "seq": done.next_seq}
        )
        return Step(
            progress=where | {"skipped": _skipped(operation.progress, done, names)},
            ended=is_last,
            done=len(done.outcomes),
            counts=Counter(done.outcomes.values()),
            woken=tuple(done.woken),
        )

    def committed(self, operation: Operation, step: Step) -> None:
        """Its subscriptions may claim."""
        redriven = step.counts.get(Outcome.REDRIVEN, 0)
        if redriven:
            self._counters.subscription(operation.target)[REDRIVEN] += redriven
        for subscription_id in step.woken:
            self._wake_ups.redeliverable(subscription_id)


def _skipped(
    progress: Mapping[str, Any], done: Redriven, names: Mapping[tuple[int, int], int]
) -> list[dict[str, str]]:
    """The first of those that did not come back, by their ids."""
    skipped = [
        {"messageId": message_id(shard_id, id_seq), "reason": done.outcomes[seq]}
        for (shard_id, seq), id_seq in names.items()
    ]
    return [*progress.get("skipped", ()), *skipped][:MAX_TOLD]
