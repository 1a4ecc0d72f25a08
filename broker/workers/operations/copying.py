"""Copies as operations: shard after shard, in the order of the log (G2)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from broker.domain.copying import (
    SCHEMA_KEYS,
    CopyOutcome,
    check_takes_copies,
    meant_from,
    next_look,
    progress_json,
)
from broker.domain.errors import Aborted, InvalidArgument, NotFound, QuotaExceeded
from broker.domain.log_page import MatchedMessage
from broker.domain.message import NewMessage
from broker.domain.message_id import id_of
from broker.domain.names import project_of
from broker.domain.operation import MAX_TOLD, Operation, Step, step_size
from broker.domain.schema import SchemaSettings
from broker.domain.topic import Topic
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.quotas import Quotas
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.wake_ups import WakeUps
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.appending import NoPartition, ShardClosed, ShardFrozen, append_to_shards, encode_for_shards
from broker.store.log.copying import read_copied
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import COPIED

_decode_attributes = msgspec.json.Decoder(dict[str, str]).decode


class CopyKind:
    """`progress`: the shard and the message that it was read to, and messages that were left alone (`skipped`)."""

    def __init__(
        self,
        clock: DatabaseClock,
        resources: ResourceCache,
        wake_ups: WakeUps,
        quotas: Quotas,
        schemas: SchemaChecks,
        counters: Counters,
    ) -> None:
        self._clock = clock
        self._resources = resources
        self._wake_ups = wake_ups
        self._quotas = quotas
        self._schemas = schemas
        self._counters = counters

    async def step(self, connection: HotConnection, operation: Operation) -> Step:
        """Raises NotFound (a topic was deleted), FailedPrecondition (the target has transforms), Aborted (it is
        frozen just now, or a quota is used up).
        """
        meant = meant_from(operation.request["meant"])
        source = await self._topic(operation.target, meant.source_id)
        target = await self._topic(meant.target, meant.target_id)
        after = next_look(meant, operation.progress, source.shard_ids)
        if after is None:
            return Step(progress=operation.progress, ended=True)
        if target.freeze is not None:
            raise Aborted(target.freeze.refusal(target.name).message)
        check_takes_copies(target)
        self._check_quotas(operation, target)
        most = step_size(operation)
        found, read = await read_copied(connection, meant=meant, after=after, max_messages=most)
        stored, shared, skipped = await self._like_the_schema(target.schema_settings, found)
        shard_ids = await self._append(connection, operation, target, stored, shared)
        progress = progress_json(after.shard_id, read)
        return Step(
            progress=progress | {"skipped": [*operation.progress.get("skipped", ()), *skipped][:MAX_TOLD]},
            ended=next_look(meant, progress, source.shard_ids) is None,
            done=len(found),
            counts=_counts(len(stored), len(skipped)),
            published=shard_ids,
        )

    async def _topic(self, name: str, topic_id: int) -> Topic:
        topic = await self._resources.topic(name)
        if topic.topic_id != topic_id:
            raise NotFound(f"The topic was deleted, another has its name (resource={name}).")
        return topic

    def _check_quotas(self, operation: Operation, target: Topic) -> None:
        """Wait while whoever started it might not publish."""
        if self._quotas.on:
            try:
                gauge = self._quotas.publishing(project_of(target.name), operation.started_by)
                gauge.check(self._quotas.ticks())
            except QuotaExceeded as error:
                raise Aborted(error.message) from error

    async def _like_the_schema(
        self, settings: SchemaSettings | None, found: Sequence[MatchedMessage]
    ) -> tuple[list[NewMessage], list[str], list[Mapping[str, Any]]]:
        """What may be stored, what the target's schema gives each besides, and what it refuses."""
        messages = [_as_published(message, without=() if settings is None else SCHEMA_KEYS) for message in found]
        if settings is None or not messages:
            return messages, [], []
        try:
            return messages, await self._schemas.check(settings, messages), []
        except InvalidArgument:  # one by one, then
            pass
        stored: list[NewMessage] = []
        shared: list[str] = []
        skipped: list[Mapping[str, Any]] = []
        for message, source in zip(messages, found, strict=True):
            try:
                shared += await self._schemas.check(settings, [message])
                stored.append(message)
            except InvalidArgument:
                skipped.append({"messageId": id_of(source.shard_id, source), "reason": CopyOutcome.REFUSED})
        return stored, shared, skipped

    async def _append(
        self,
        connection: HotConnection,
        operation: Operation,
        target: Topic,
        messages: Sequence[NewMessage],
        shared: Sequence[str],
    ) -> Sequence[int]:
        batches = encode_for_shards(target, messages, shared)
        try:
            await append_to_shards(connection, batches=batches, now=self._clock.now())
        except (ShardClosed, ShardFrozen, NoPartition) as error:  # what was known of it is old
            self._resources.drop(target.name)
            raise Aborted(f"{target.name} takes nothing just now.") from error
        if self._quotas.on:
            gauge = self._quotas.publishing(project_of(target.name), operation.started_by)
            size = sum(request.size for requests in batches.values() for request in requests)
            gauge.take(self._quotas.ticks(), requests=1, messages=len(messages), size=size)
        return list(batches)

    def committed(self, operation: Operation, step: Step) -> None:
        """Subscriptions of the target may claim."""
        if copied := step.counts.get(CopyOutcome.COPIED, 0):
            self._counters.topic(meant_from(operation.request["meant"]).target)[COPIED] += copied
        for shard_id in step.published:
            self._wake_ups.published(shard_id)


def _counts(copied: int, refused: int) -> dict[str, int]:
    counts = {CopyOutcome.COPIED: copied, CopyOutcome.REFUSED: refused}
    return {outcome: count for outcome, count in counts.items() if count}


def _as_published(message: MatchedMessage, *, without: Sequence[str]) -> NewMessage:
    attributes = _decode_attributes(message.attributes)
    return NewMessage(
        data=message.data or b"",
        attributes={key: value for key, value in attributes.items() if key not in without},
        ordering_key=message.ordering_key or "",
    )
