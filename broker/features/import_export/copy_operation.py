"""Runs copies as operations: one shard after another, in the order of the log (G2)."""

from collections.abc import Sequence

import msgspec

from broker.core.context.core import Core
from broker.core.log.copied_messages import read_copied
from broker.core.log.copying import CopyOutcome, meant_from, next_position, progress_json
from broker.core.log.log_page import MatchedMessage
from broker.db.driver.hot_connection import HotConnection
from broker.features.operations.operation import MAX_REPORTED, Operation, Step, step_size
from broker.features.operations.targets import Targets
from broker.model.message import NewMessage
from broker.model.message_id import id_of
from broker.observability.metrics.families import COPIED

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class CopyKind:
    """`progress`: the shard and the message that it was read to, and messages that were left alone (`skipped`)."""

    def __init__(self, core: Core, targets: Targets) -> None:
        self._targets = targets
        self._wake_ups = core.wake_ups
        self._counters = core.counters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Raises NotFound (a topic was deleted), PermissionDenied, FailedPrecondition (the target has
        transforms), Aborted (it is frozen just now, or a quota is used up).
        """
        meant = meant_from(operation.request["meant"])
        source = await self._targets.topic(operation.target, meant.source_id)
        target = await self._targets.topic(meant.target, meant.target_id)
        after = next_position(meant, operation.progress, source.shard_ids)
        if after is None:
            return Step(progress=operation.progress, ended=True)
        await self._targets.check_open(target, operation)
        most = step_size(operation)
        found, read = await read_copied(connection, meant=meant, after=after, max_messages=most)
        prepared, numbers = await self._targets.acceptable(target, _as_published(found))
        shard_ids: Sequence[int] = ()
        if prepared is not None:
            shard_ids = await self._targets.append(connection, prepared, started_by=operation.started_by)
        skipped = [
            {"messageId": id_of(message.shard_id, message), "reason": CopyOutcome.REFUSED}
            for message in (found[number] for number in sorted({*range(len(found))}.difference(numbers)))
        ]
        progress = progress_json(after.shard_id, read)
        return Step(
            progress=progress | {"skipped": [*operation.progress.get("skipped", ()), *skipped][:MAX_REPORTED]},
            ended=next_position(meant, progress, source.shard_ids) is None,
            done=len(found),
            counts=_counts(len(numbers), len(skipped)),
            published=shard_ids,
        )

    def committed(self, operation: Operation, step: Step) -> None:
        """Subscriptions of the target may claim."""
        if copied := step.counts.get(CopyOutcome.COPIED, 0):
            self._counters.topic(meant_from(operation.request["meant"]).target)[COPIED] += copied
        for shard_id in step.published:
            self._wake_ups.published(shard_id)


def _counts(copied: int, refused: int) -> dict[str, int]:
    counts = {CopyOutcome.COPIED: copied, CopyOutcome.REFUSED: refused}
    return {outcome: count for outcome, count in counts.items() if count}


def _as_published(found: Sequence[MatchedMessage]) -> list[NewMessage]:
    return [
        NewMessage(
            data=message.data or b"",
            attributes=_decode_attributes(message.attributes),
            ordering_key=message.ordering_key or "",
        )
        for message in found
    ]
