"""The operations that recover failed pushes and replay missing ones (G2).

They redrive dead letters first, and then read the log shard after shard.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.log.copying import progress_json
from broker.core.log.message_ids import id_seqs_at
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.recovery.push_replay import DONE, Meant
from broker.features.dead_letters.recovery.rows import ReplayStep, replay_pushes
from broker.features.dead_letters.redriving.operation import RedriveKind
from broker.features.operations.operation import MAX_REPORTED, Operation, Step, step_size
from broker.model.journal import Author
from broker.model.message_id import message_id
from broker.observability.metrics.families import RESENT


class PushReplayKind:
    """Runs the steps of these operations.

    `progress`: that of a redrive until all dead letters (`chosen`) are redriven; then `walk`, the shard and the
    message up to which the log was read.  `skipped`: the first messages that are not delivered again.
    """

    def __init__(self, core: Core, dead_letters: RedriveKind) -> None:
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._counters = core.counters
        self._dead_letters = dead_letters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Runs a step.  Raises NotFound (a deleted subscription), FailedPrecondition (a detached one), Aborted."""
        if "chosen" in operation.request and "walk" not in operation.progress:
            step = await self._dead_letters.step(connection, operation)
            return replace(step, ended=False, progress={**step.progress, "walk": {}}) if step.ended else step
        meant = Meant.from_json(operation.request["meant"])
        walked: Mapping[str, Any] = operation.progress.get("walk", {})
        await self._resources.subscription_meant(operation.target, meant.walk.subscription_id)
        after = meant.walk.next_position(walked)
        if after is None:
            return Step(progress=operation.progress, ended=True)
        wanted = ReplayStep(
            meant=meant,
            after=after,
            max_messages=step_size(operation),
            author=Author(principal=operation.started_by),
            now=self._clock.now(),
        )
        done = await replay_pushes(connection, wanted, self._attempt_ids)
        walked = progress_json(after.shard_id, done.rest)
        skipped = await _skipped(connection, after.shard_id, done.outcomes)
        reported = [*operation.progress.get("skipped", ()), *skipped][:MAX_REPORTED]
        return Step(
            progress={"walk": walked, "skipped": reported},
            ended=meant.walk.next_position(walked) is None,
            done=len(done.outcomes),
            counts=Counter(done.outcomes.values()),
            woken=(meant.walk.subscription_id,) if Outcome.REPLAYED in done.outcomes.values() else (),
        )

    def committed(self, operation: Operation, step: Step) -> None:
        """Counts the messages of a step that was committed, and wakes up claims."""
        if replayed := step.counts.get(Outcome.REPLAYED, 0):
            self._counters.subscription(operation.target)[RESENT] += replayed
        self._dead_letters.committed(operation, step)


async def _skipped(
    connection: HotConnection, shard_id: int, outcomes: Mapping[int, Outcome]
) -> list[dict[str, str]]:
    """Returns the ids of the first messages that are not delivered again, with the reasons."""
    left = [(shard_id, seq) for seq, outcome in outcomes.items() if outcome not in DONE]
    names = await id_seqs_at(connection, left[:MAX_REPORTED])
    return [
        {"messageId": message_id(shard_id, id_seq), "reason": outcomes[seq]} for (_, seq), id_seq in names.items()
    ]
