"""Stores messages of a caller, which are sent in numbered parts (G2); an extension."""

from hashlib import sha256

from broker.core.context.core import Core
from broker.core.log.appending import Batches, ShardClosed, ShardFrozen
from broker.core.log.partitions import with_partitions
from broker.core.process.retrying import retrying
from broker.core.publishing.preparation import Preparation, batches_of
from broker.core.publishing.publishing_rules import IMPORT, IMPORT_THAT_EXPIRES
from broker.features.import_export.import_rows import StoredPart, append_part
from broker.features.import_export.imports import Imported, Part, check_part
from broker.model.errors import Aborted, AlreadyExists
from broker.model.names import leaf
from broker.model.topic import Topic
from broker.observability.metrics.families import IMPORTED


class ImportService:
    """A part is stored in one transaction, with a note of its number: sent again, it is not stored again."""

    def __init__(self, core: Core, preparation: Preparation) -> None:
        self._database = core.database
        self._clock = core.clock
        self._resources = core.resources
        self._wake_ups = core.wake_ups
        self._preparation = preparation
        self._counters = core.counters

    async def import_part(self, name: str, part: Part, sent: bytes, principal: str = "") -> Imported:
        """Store a part, unless it was stored before.  `sent`: what it was made of; `principal`: by whom.

        Raises InvalidArgument, NotFound, FailedPrecondition (the topic is frozen, or has transforms), AlreadyExists
        (another part was stored under this number), QuotaExceeded, StorageLow, Aborted, Unavailable (the outcome is
        unknown: send the part again).
        """
        check_part(part)
        digest = sha256(sent).digest()
        topic, before = await retrying(lambda: self._store(name, part, digest, principal), Aborted)
        if before is None:
            self._counters.topic(name)[IMPORTED] += len(part.messages)
            return Imported(len(part.messages), expires=part.expires if topic.extensions.expiry else None)
        if before.digest != digest:
            raise AlreadyExists(
                f"Part {part.number} of import {part.import_id} was stored before, and was another: give another "
                f"importId to another import (resource={leaf(name)})."
            )
        return Imported(before.message_count, repeated=True)

    async def _store(self, name: str, part: Part, digest: bytes, principal: str) -> tuple[Topic, StoredPart | None]:
        """The topic by whose settings the part was prepared, and the part that its number already stands for."""
        rules = IMPORT_THAT_EXPIRES if part.expires else IMPORT
        prepared = await self._preparation.open_and_prepare(name, part.messages, rules)
        topic = prepared.topic
        await self._preparation.admit(prepared, rules, principal)
        stored = StoredPart(
            topic_id=topic.topic_id,
            import_id=part.import_id,
            number=part.number,
            digest=digest,
            message_count=len(part.messages),
        )
        batches = batches_of([prepared])
        before = await self._append(topic, stored, batches)
        if before is None:
            self._preparation.charge([prepared], rules, principal)
            for shard_id in batches:
                self._wake_ups.published(shard_id)
        return topic, before

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
