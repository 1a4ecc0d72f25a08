"""The redrive operation: one shard after the other, in the order of the log (G2)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker.core.backlog.outcome import Outcome
from broker.core.context.core import Core
from broker.core.log.message_ids import id_seqs_at
from broker.core.publishing.preparation import Prepared
from broker.db.driver.hot_connection import HotConnection
from broker.features.dead_letters.chosen import DONE, Chosen, from_json
from broker.features.dead_letters.redriving.rows import Redrive, redrive
from broker.features.operations.operation import MAX_REPORTED, Operation, Step, step_size
from broker.features.operations.targets import Targets
from broker.model.journal import Author
from broker.model.message import NewMessage
from broker.model.message_id import message_id
from broker.model.subscription import Subscription
from broker.model.topic import Topic
from broker.observability.metrics.families import DEAD_LETTERS_SENT, REDRIVEN


@dataclass(slots=True)
class _Recipient:
    """The topic to which one step sends messages (dead_letter_groups.Recipient)."""

    targets: Targets
    topic: Topic
    started_by: str
    prepared: Prepared | None = None
    shard_ids: Sequence[int] = ()
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.topic.name

    async def take(self, messages: Sequence[NewMessage]) -> Sequence[int]:
        self.prepared, numbers = await self.targets.acceptable(self.topic, messages)
        return numbers

    async def append(self, connection: HotConnection) -> None:
        if self.prepared is not None:
            self.shard_ids = await self.targets.append(connection, self.prepared, started_by=self.started_by)


class RedriveKind:
    """Runs the steps of redrives.

    `progress`: the shard and the sequence at which the next step begins, and the first messages that were
    `skipped`.
    """

    def __init__(self, core: Core, targets: Targets) -> None:
        self._clock = core.clock
        self._resources = core.resources
        self._targets = targets
        self._wake_ups = core.wake_ups
        self._attempt_ids = core.attempt_ids
        self._counters = core.counters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Runs a step.

        Raises NotFound (the subscription or the target was deleted), FailedPrecondition (the subscription was
        detached, or the target has transforms now), Aborted.
        """
        chosen = from_json(operation.request["chosen"])
        subscription = await self._resources.subscription_meant(operation.target, chosen.subscription_id)
        later = [id_ for id_ in subscription.shard_ids if id_ >= operation.progress.get("shard", 0)]
        if not later:
            return Step(progress=operation.progress, ended=True)
        shard_id = min(later)
        begun = shard_id == operation.progress.get("shard")
        from_seq = operation.progress["seq"] if begun else 0
        recipient = await self._recipient(operation)
        wanted = self._wanted(operation, subscription, chosen, recipient, shard_id=shard_id, from_seq=from_seq)
        done = await redrive(connection, wanted, self._attempt_ids)
        failed = [(shard_id, seq) for seq, outcome in done.outcomes.items() if outcome not in DONE]
        names = await id_seqs_at(connection, failed[:MAX_REPORTED]) if failed else {}
        is_last = done.next_seq is None and len(later) == 1
        where = (
            {"shard": shard_id + 1, "seq": 0}
            if done.next_seq is None
            else {"shard": shard_id, "seq": done.next_seq}
        )
        return Step(
            progress=where | {"skipped": _skipped(operation.progress, done.outcomes, names)},
            ended=is_last,
            done=len(done.outcomes),
            counts=Counter(done.outcomes.values()),
            woken=tuple(done.woken),
            published=() if recipient is None else recipient.shard_ids,
        )

    def _wanted(
        self,
        operation: Operation,
        subscription: Subscription,
        chosen: Chosen,
        recipient: _Recipient | None,
        *,
        shard_id: int,
        from_seq: int,
    ) -> Redrive:
        return Redrive(
            chosen=chosen,
            shard_id=shard_id,
            from_seq=from_seq,
            max_messages=step_size(operation),
            ordered=subscription.enable_message_ordering,
            consumable=frozenset(operation.request["consumable"]),
            author=Author(principal=operation.started_by),
            now=self._clock.now(),
            recipient=recipient,
        )

    async def _recipient(self, operation: Operation) -> _Recipient | None:
        if "targetTopic" not in operation.request:
            return None
        topic = await self._targets.topic(operation.request["targetTopic"], operation.request["targetId"])
        await self._targets.check_open(topic, operation)
        return _Recipient(self._targets, topic, operation.started_by)

    def committed(self, operation: Operation, step: Step) -> None:
        """Counts the messages of a step that was committed, and wakes up claims."""
        if redriven := step.counts.get(Outcome.REDRIVEN, 0):
            self._counters.subscription(operation.target)[REDRIVEN] += redriven
        if sent := step.counts.get(Outcome.SENT, 0):
            self._counters.subscription(operation.target)[DEAD_LETTERS_SENT] += sent
        for shard_id in step.published:
            self._wake_ups.published(shard_id)
        for subscription_id in step.woken:
            self._wake_ups.redeliverable(subscription_id)


def _skipped(
    progress: Mapping[str, Any], outcomes: Mapping[int, Outcome], names: Mapping[tuple[int, int], int]
) -> list[dict[str, str]]:
    """Returns the ids of the first messages that were not redriven, with the reasons."""
    skipped = [
        {"messageId": message_id(shard_id, id_seq), "reason": outcomes[seq]}
        for (shard_id, seq), id_seq in names.items()
    ]
    return [*progress.get("skipped", ()), *skipped][:MAX_REPORTED]
