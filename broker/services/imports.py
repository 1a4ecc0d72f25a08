"""Messages that a caller has, stored in numbered parts (G2); an extension."""

from collections.abc import Sequence
from hashlib import sha256

from broker.domain.copying import check_takes_copies
from broker.domain.errors import Aborted, AlreadyExists
from broker.domain.imports import Imported, Part, check_part, without_schema
from broker.domain.message import NewMessage
from broker.domain.names import leaf, project_of
from broker.domain.publish_limits import check_request_size
from broker.domain.topic import Topic
from broker.runtime.core import Core
from broker.runtime.retrying import retrying
from broker.runtime.schema_checks import SchemaChecks
from broker.store.log.appending import Batches, ShardClosed, ShardFrozen, encode_for_shards
from broker.store.log.imports import StoredPart, append_part
from broker.store.log.partitions import with_partitions
from broker.telemetry.metrics.families import IMPORTED


class ImportService:
    """A part is stored in one transaction, with a note of its number: sent again, it is not stored again."""

    def __init__(self, core: Core, schemas: SchemaChecks) -> None:
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._quotas = core.quotas
        self._schemas = schemas
        self._counters = core.counters

    async def import_part(self, name: str, part: Part, sent: bytes, principal: str = "") -> Imported:
        """Store a part, unless it was stored before.  `sent`: what it was made of; `principal`: by whom.

        Raises InvalidArgument, NotFound, FailedPrecondition (the topic is frozen, or has transforms), AlreadyExists
        (another part was stored under this number), QuotaExceeded, StorageLow, Aborted, Unavailable (the outcome is
        unknown: send the part again).
        """
        check_part(part)
        digest = sha256(sent).digest()
        before = await retrying(lambda: self._store(name, part, digest, principal), Aborted)
        if before is None:
            self._counters.topic(name)[IMPORTED] += len(part.messages)
            return Imported(len(part.messages))
        if before.digest != digest:
            raise AlreadyExists(
                f"Part {part.number} of import {part.import_id} was stored before, and was another: give another "
                f"importId to another import (resource={leaf(name)})."
            )
        return Imported(before.message_count, repeated=True)

    async def _store(self, name: str, part: Part, digest: bytes, principal: str) -> StoredPart | None:
        project = project_of(name)
        await self._quotas.storage.check_paced(project)
        topic = await self._resources.topic(name)
        if topic.freeze is not None:
            raise topic.freeze.refusal(name)
        check_takes_copies(topic)
        batches = await self._encode(topic, part.messages)
        if self._quotas.on:
            await self._quotas.check(self._quotas.publishing(project, principal), project)
        stored = StoredPart(
            topic_id=topic.topic_id,
            import_id=part.import_id,
            number=part.number,
            digest=digest,
            message_count=len(part.messages),
        )
        before = await self._append(topic, stored, batches)
        if before is None:
            size = sum(request.size for requests in batches.values() for request in requests)
            gauge = self._quotas.publishing(project, principal)
            gauge.take(self._quotas.ticks(), requests=1, messages=len(part.messages), size=size)
            for shard_id in batches:
                self._wake_ups.published(shard_id)
        return before

    async def _encode(self, topic: Topic, messages: Sequence[NewMessage]) -> Batches:
        """Raises InvalidArgument for a message that is not as the schema says; or they are too large together."""
        settings = topic.schema_settings
        shared: Sequence[str] = ()
        if settings is not None:
            messages = [without_schema(message) for message in messages]
            shared = await self._schemas.check(project_of(topic.name), settings, messages)
        batches = encode_for_shards(topic, messages, shared)
        size = sum(request.size for requests in batches.values() for request in requests)
        check_request_size(topic.name, messages, size)
        return batches

    async def _append(self, topic: Topic, part: StoredPart, batches: Batches) -> StoredPart | None:
        """Raises Aborted: what was known of the topic was old."""

        async def append() -> StoredPart | None:
            async with self._database.hot() as connection:
                return await append_part(connection, part=part, batches=batches, now=self._clock.now())

        try:
            return await with_partitions(self._database, self._clock.now, append)
        except (ShardClosed, ShardFrozen) as error:
            self._resources.drop(topic.name)
            raise Aborted(f"The topic was changed meanwhile; try again (resource={topic.name}).") from error
