"""Publish (A1, B1): limits, then the coalescer."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from broker.domain.deduplication import identities
from broker.domain.delay import due_times
from broker.domain.errors import BrokerError, NotFound
from broker.domain.expiry import times_to_live
from broker.domain.message import NewMessage
from broker.domain.message_id import message_id, message_ids
from broker.domain.names import project_of
from broker.domain.priority import levels_of
from broker.domain.publish_limits import check_messages, check_request_size
from broker.domain.topic import Topic
from broker.runtime.core import Core
from broker.runtime.next_due import NextDue
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.scheduled_room import ScheduledRoom
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.shard_choice import ShardChoice
from broker.runtime.transforms import PUBLISH_SECONDS, TopicTransforms
from broker.store.log.messages import Appended, EncodedMessages, Identified
from broker.store.log.packing import Packing
from broker.telemetry.metrics.families import PUBLISH_REQUESTS

if TYPE_CHECKING:  # OpenTelemetry is not imported where nothing is traced
    from broker.telemetry.tracing import Tracing

_MOST_TRIES = 10  # of a publish to a topic that is there, and gets new logs each time


class Published(NamedTuple):
    """The ids of a request's messages, in order.

    `repeats`: the indexes of messages that were not stored, as they repeat earlier ones, whose ids they have.
    """

    ids: list[str]
    repeats: Sequence[int] = ()


class PublishService:
    """Publisher.Publish."""

    def __init__(
        self,
        core: Core,
        coalescer: PublishCoalescer,
        schemas: SchemaChecks,
        transforms: TopicTransforms,
        next_due: NextDue,
        room: ScheduledRoom,
    ) -> None:
        self._counters = core.counters
        self._clock = core.clock
        self._next_due = next_due
        self._room = room
        self._resources = core.resources
        self._quotas, self._storage = core.quotas, core.storage
        self._coalescer = coalescer
        self._schemas = schemas
        self._transforms = transforms
        self._choice = ShardChoice(coalescer.is_busy)

    @property
    def is_traced(self) -> bool:
        """Whether anybody looks at a request's `traceparent`."""
        return self._counters.tracing is not None

    async def check_room(self, topic_name: str, principal: str = "") -> None:
        """Raises ResourceExhausted if a publish would be refused; costs nothing beside decoding its messages.

        Only as far as that is known beforehand: which shard of several it is for depends on its ordering key.
        """
        if self._storage.is_raised:
            await self._storage.check_paced(project_of(topic_name))
        topic = self._resources.known_topic(topic_name)
        if topic is not None and self._quotas.on:
            project = project_of(topic_name)
            await self._quotas.check(self._quotas.publishing(project, principal), project)
        if topic is not None and len(topic.shard_ids) == 1:
            self._coalescer.check_room(topic.shard_ids[0])

    async def publish(
        self, topic_name: str, messages: Sequence[NewMessage], principal: str = "", traceparent: bytes = b""
    ) -> Published:
        """Store messages durably and return their ids.  `principal`: who publishes ("": it is not known);
        `traceparent`: the request's place in a trace, if it has one.

        Raises InvalidArgument, FailedPrecondition, NotFound, ResourceExhausted, Unavailable (outcome unknown).
        """
        if self._counters.tracing is not None:
            return await self._publish_traced(self._counters.tracing, topic_name, messages, principal, traceparent)
        topic, batch = await self._admit(topic_name, messages, principal)
        return await self._store(topic, messages, batch)

    async def _publish_traced(
        self,
        tracing: "Tracing",
        topic_name: str,
        messages: Sequence[NewMessage],
        principal: str,
        traceparent: bytes,
    ) -> Published:
        with tracing.publishing(topic_name, [message.attributes for message in messages], traceparent) as ids:
            topic, batch = await self._admit(topic_name, messages, principal)
            published = await self._store(topic, messages, batch)
            ids += published.ids
            return published

    def _store(
        self, topic: Topic, messages: Sequence[NewMessage], batch: EncodedMessages, tries: int = 1
    ) -> Awaitable[Published]:
        if batch.identified is None and batch.levels is None:
            shard_id = self._shard(topic, messages[0].ordering_key, len(messages))
            return self._append(topic, shard_id, messages, batch, tries)
        return self._store_in_several(topic, messages, batch, tries)

    async def _store_in_several(
        self, topic: Topic, messages: Sequence[NewMessage], batch: EncodedMessages, tries: int
    ) -> Published:
        """A request whose messages are for several shards goes to each for itself."""
        of_shard: dict[int, list[int]] = {}
        for index, shard_id in enumerate(self._shards(topic, messages[0].ordering_key, batch)):
            of_shard.setdefault(shard_id, []).append(index)
        if len(of_shard) == 1:
            return await self._append(topic, next(iter(of_shard)), messages, batch, tries)
        answers = await asyncio.gather(
            *(
                self._append(topic, shard_id, [messages[index] for index in indexes], _part(batch, indexes), tries)
                for shard_id, indexes in of_shard.items()
            ),
            return_exceptions=True,
        )
        ids = [""] * len(messages)
        repeats: list[int] = []
        for indexes, answer in zip(of_shard.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            for index, id_ in zip(indexes, answer.ids, strict=True):
                ids[index] = id_
            repeats += [indexes[repeat] for repeat in answer.repeats]
        return Published(ids, sorted(repeats))

    async def _append(
        self, topic: Topic, shard_id: int, messages: Sequence[NewMessage], batch: EncodedMessages, tries: int
    ) -> Published:
        """What is for one shard."""
        project = project_of(topic.name)
        try:
            if batch.identified is not None:
                if batch.scheduled is not None:
                    self._next_due.tell(min(batch.scheduled.due_ats))
                stored = await self._coalescer.publish_new(shard_id, batch, project=project, topic=topic.name)
                ids = [message_id(shard_id, id_seq) for id_seq in stored.id_seqs]
                return Published(ids, stored.repeated)
            appended = await self._coalescer.publish(shard_id, batch, project=project, topic=topic.name)
        except NotFound:  # deleted, frozen or purged a moment ago; perhaps there is one of that name already
            if tries == _MOST_TRIES:
                raise
        else:
            if batch.scheduled is not None:
                return Published(self._scheduled(shard_id, batch, appended))
            return Published(message_ids(shard_id, appended.first_seq, len(messages)))
        self._resources.drop(topic.name)
        topic = await self._open_topic(topic.name)
        return await self._store(topic, messages, await self._encode(topic, messages), tries + 1)

    async def prepare(self, topic_name: str, message: NewMessage, principal: str) -> tuple[int, EncodedMessages]:
        """What is asked of a publish, for a transaction that does more: a message's shard, and how it is packed.

        Raises as a publish does.
        """
        topic, batch = await self._admit(topic_name, [message], principal)
        return self._shards(topic, message.ordering_key, batch)[0], batch

    async def _admit(
        self, topic_name: str, messages: Sequence[NewMessage], principal: str
    ) -> tuple[Topic, EncodedMessages]:
        """Everything that may refuse a publish, in its order, and what it has taken by then."""
        if self._storage.is_raised:
            await self._storage.check_paced(project_of(topic_name))
        topic = await self._open_topic(topic_name)
        check_messages(messages)
        batch = await self._encode(topic, messages)
        if batch.scheduled is not None:
            await self._room.take(topic, batch.scheduled.count)
        if self._quotas.on:
            await self._take(topic_name, principal, batch)
        return topic, batch

    async def _take(self, topic_name: str, principal: str, batch: EncodedMessages) -> None:
        """Raises ResourceExhausted."""
        project = project_of(topic_name)
        gauge = self._quotas.publishing(project, principal)
        now = await self._quotas.check(gauge, project)
        later = 0 if batch.scheduled is None else batch.scheduled.count
        gauge.take(now, requests=1, messages=batch.count + later, size=batch.size)

    async def _open_topic(self, name: str) -> Topic:
        """The topic as it is known.  Raises NotFound, FailedPrecondition (it is frozen)."""
        topic = await self._resources.topic(name)
        if topic.freeze is not None:
            raise topic.freeze.refusal(name)
        return topic

    def refused(self, topic_name: str, error: BrokerError) -> None:
        """Count a publish request that was answered with an error."""
        exists = self._resources.known_topic(topic_name) is not None
        counts = self._counters.topic(topic_name) if exists else self._counters.unknown_topic()
        counts[PUBLISH_REQUESTS.get(error.code, PUBLISH_REQUESTS["INTERNAL"])] += 1

    async def _encode(self, topic: Topic, messages: Sequence[NewMessage]) -> EncodedMessages:
        """Raises InvalidArgument for a message that is not as the topic's schema says, or that a transform of the
        topic failed for; or if they are too large together.
        """
        known, priorities = topic.extensions.deduplication, topic.extensions.priorities
        digests = None if known is None else identities(messages, known)  # as publishers sent them
        if topic.transforms and topic.transforms_messages:
            packing = await self._transform(topic, messages)
        else:
            shared = await self._check_schema(topic, messages)
            due_ats = due_times(messages, self._clock.now()) if topic.extensions.delay else None
            ttls = times_to_live(messages) if topic.extensions.expiry else None
            packing = Packing(messages, messages, shared, due_ats, ttls)
        levels = None if priorities is None else levels_of(packing.messages, priorities)
        batch = packing.pack()
        if packing.stored:
            check_request_size(topic.name, packing.stored, batch.size)
        identified = None if known is None or digests is None else Identified(digests, known.window)
        if identified is None and levels is None:
            return batch
        return replace(batch, identified=identified, levels=levels, some=packing.some)

    async def _transform(self, topic: Topic, messages: Sequence[NewMessage]) -> Packing:
        """What the transforms make of them is what has to be as the limits and the schema say."""
        made = await self._transforms.publish(topic, messages)
        stored = [message for message in made if message is not None]
        shared: Sequence[str] = ()
        if stored:
            check_messages(stored)
            shared = await self._check_schema(topic, stored)
        due_ats = due_times(made, self._clock.now()) if topic.extensions.delay else None
        ttls = times_to_live(made) if topic.extensions.expiry else None
        return Packing(made, stored, shared, due_ats, ttls)

    async def _check_schema(self, topic: Topic, messages: Sequence[NewMessage]) -> Sequence[str]:
        settings = topic.schema_settings
        if settings is None:
            return ()
        return await self._schemas.check(project_of(topic.name), settings, messages, seconds=PUBLISH_SECONDS)

    def _scheduled(self, shard_id: int, batch: EncodedMessages, appended: Appended) -> list[str]:
        """The ids of a request's messages, of which some are to come later."""
        assert batch.scheduled is not None
        self._next_due.tell(min(batch.scheduled.due_ats))
        later = {index: appended.first_id_seq + n for n, index in enumerate(batch.scheduled.indexes)}
        at_once = iter(message_ids(shard_id, appended.first_seq, batch.count))
        indexes = range(batch.count + batch.scheduled.count)
        return [message_id(shard_id, later[index]) if index in later else next(at_once) for index in indexes]

    def _shard(self, topic: Topic, ordering_key: str, count: int) -> int:
        if ordering_key:
            return topic.shard_of(ordering_key)
        return self._choice.choose(topic.topic_id, topic.plain_shard_ids, count)

    def _shards(self, topic: Topic, ordering_key: str, batch: EncodedMessages) -> list[int]:
        """Of each message: that of its level; else without a key that of its identity, where whoever publishes the
        same at the same time comes, too.
        """
        count = batch.count + (0 if batch.scheduled is None else batch.scheduled.count)
        own = self._shard(topic, ordering_key, count)
        shards = [own] * count
        if batch.identified is not None and not ordering_key and len(topic.plain_shard_ids) > 1:
            digests = batch.identified.digests
            shards = [own if digest is None else topic.shard_of(digest.hex()) for digest in digests]
        if batch.levels is None:
            return shards
        return [topic.urgent_shard(level) or shard for level, shard in zip(batch.levels, shards, strict=True)]


def _part(whole: EncodedMessages, indexes: Sequence[int]) -> EncodedMessages:
    """Some of a request's messages as a request of their own."""
    assert whole.some is not None
    pack, known = whole.some, whole.identified

    def some(kept: Sequence[int]) -> EncodedMessages:
        return pack([indexes[index] for index in kept])

    identified = None if known is None else replace(known, digests=[known.digests[index] for index in indexes])
    return replace(pack(indexes), identified=identified, some=some)
