"""The operation that purges a subscription by a filter: shard after shard, in the order of the log (G2)."""

from collections import Counter

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.log.copying import progress_json
from broker.core.log.log_walk import LogWalk
from broker.core.log.message_ids import id_seqs_at
from broker.db.driver.hot_connection import HotConnection
from broker.features.operations.operation import MAX_REPORTED, Operation, Step, step_size
from broker.features.purge.rows import PurgeStep, purge_matching
from broker.model.journal import Author
from broker.model.message_id import message_id
from broker.observability.metrics.families import DISCARDED


class PurgeKind:
    """The kind of operations that purge a subscription by a filter.

    `progress` is the shard and the message up to which it has been read, and messages that were left alone
    (`skipped`).
    """

    def __init__(self, core: Core) -> None:
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._counters = core.counters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Drops the next matching messages of one shard.

        Raises NotFound (the subscription was deleted), FailedPrecondition (it was detached).
        """
        meant = LogWalk.from_json(operation.request["meant"])
        await self._resources.subscription_meant(operation.target, meant.subscription_id)
        after = meant.next_position(operation.progress)
        if after is None:
            return Step(progress=operation.progress, ended=True)
        wanted = PurgeStep(
            meant=meant,
            after=after,
            max_messages=step_size(operation),
            author=Author(principal=operation.started_by),
            now=self._clock.now(),
        )
        done = await purge_matching(connection, wanted, self._attempt_ids)
        left = [(after.shard_id, seq) for seq, each in done.outcomes.items() if each is not Outcome.PURGED]
        names = await id_seqs_at(connection, left[:MAX_REPORTED])
        skipped = [
            {"messageId": message_id(shard_id, id_seq), "reason": Outcome.OUTSTANDING}
            for (shard_id, _), id_seq in names.items()
        ]
        progress = progress_json(after.shard_id, done.rest)
        return Step(
            progress=progress | {"skipped": [*operation.progress.get("skipped", ()), *skipped][:MAX_REPORTED]},
            ended=meant.next_position(progress) is None,
            done=len(done.outcomes),
            counts=Counter(done.outcomes.values()),
            woken=(meant.subscription_id,) if done.outcomes else (),
        )

    def committed(self, operation: Operation, step: Step) -> None:
        """Counts the dropped messages and wakes the subscription: messages with their ordering keys may now be
        claimed.
        """
        if purged := step.counts.get(Outcome.PURGED, 0):
            self._counters.subscription(operation.target)[DISCARDED] += purged
        for subscription_id in step.woken:
            self._wake_ups.redeliverable(subscription_id)
