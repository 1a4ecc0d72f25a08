"""Publish (A1, B1): what is asked of messages, then the coalescer."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from broker.domain.errors import BrokerError, NotFound
from broker.domain.message import NewMessage
from broker.domain.message_id import message_id, message_ids
from broker.domain.names import project_of
from broker.domain.publishing_rules import PUBLISH
from broker.runtime.core import Core
from broker.runtime.next_due import NextDue
from broker.runtime.preparation import Part, Preparation, Prepared, Published
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.transforms import PUBLISH_SECONDS
from broker.store.log.identities import id_seqs_of
from broker.telemetry.metrics.families import PUBLISH_REQUESTS

if TYPE_CHECKING:  # OpenTelemetry is not imported where nothing is traced
    from broker.telemetry.tracing import Tracing

_MOST_TRIES = 10  # of a publish to a topic that is there, and gets new logs each time


class PublishService:
    """Publisher.Publish."""

    def __init__(
        self, core: Core, coalescer: PublishCoalescer, preparation: Preparation, *, next_due: NextDue
    ) -> None:
        self._counters = core.counters
        self._next_due = next_due
        self._resources = core.resources
        self._quotas, self._storage = core.quotas, core.storage
        self._coalescer = coalescer
        self._preparation = preparation

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
            await self._preparation.check_quotas(topic, PUBLISH, principal)
        if topic is not None and len(topic.shard_ids) == 1:
            self._coalescer.check_room(topic.shard_ids[0])

    def publish(
        self, topic_name: str, messages: Sequence[NewMessage], principal: str = "", traceparent: bytes = b""
    ) -> Coroutine[Any, Any, Published]:
        """Store messages durably and return their ids.  `principal`: who publishes ("": it is not known);
        `traceparent`: the request's place in a trace, if it has one.

        Raises InvalidArgument, FailedPrecondition, NotFound, ResourceExhausted, Unavailable (outcome unknown).
        """
        if self._counters.tracing is not None:
            return self._publish_traced(self._counters.tracing, topic_name, messages, principal, traceparent)
        return self._publish(topic_name, messages, principal)

    async def _publish_traced(
        self,
        tracing: "Tracing",
        topic_name: str,
        messages: Sequence[NewMessage],
        principal: str,
        traceparent: bytes,
    ) -> Published:
        with tracing.publishing(topic_name, [message.attributes for message in messages], traceparent) as ids:
            published = await self._publish(topic_name, messages, principal)
            ids += published.ids
            return published

    async def _publish(self, topic_name: str, messages: Sequence[NewMessage], principal: str) -> Published:
        topic = await self._preparation.open_topic(topic_name, PUBLISH)
        prepared = await self._preparation.prepare(topic, messages, PUBLISH, schema_seconds=PUBLISH_SECONDS)
        if prepared.later or self._quotas.on:
            await self._take(prepared, principal)
        return await self._store(prepared, messages)

    async def _take(self, prepared: Prepared, principal: str) -> None:
        """Raises ResourceExhausted."""
        await self._preparation.take_room(prepared, PUBLISH)
        await self._preparation.check_quotas(prepared.topic, PUBLISH, principal)
        self._preparation.charge([prepared], PUBLISH, principal)

    def _store(
        self, prepared: Prepared, messages: Sequence[NewMessage], tries: int = 1
    ) -> Coroutine[Any, Any, Published]:
        if len(prepared.parts) == 1:
            return self._append(prepared.topic.name, prepared.parts[0], messages, tries)
        return self._store_in_several(prepared, messages, tries)

    async def _store_in_several(self, prepared: Prepared, messages: Sequence[NewMessage], tries: int) -> Published:
        """Append the messages for each shard by themselves."""
        answers = await asyncio.gather(
            *(
                self._append(prepared.topic.name, part, [messages[index] for index in part.indexes or ()], tries)
                for part in prepared.parts
            ),
            return_exceptions=True,
        )
        ids = [""] * len(messages)
        repeats: list[int] = []
        for part, answer in zip(prepared.parts, answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            indexes = part.indexes or ()
            for index, id_ in zip(indexes, answer.ids, strict=True):
                ids[index] = id_
            repeats += [indexes[repeat] for repeat in answer.repeats]
        return Published(ids, sorted(repeats))

    async def _append(self, topic: str, part: Part, messages: Sequence[NewMessage], tries: int) -> Published:
        """Append the messages for one shard."""
        shard_id, batch, _ = part
        project = project_of(topic)
        try:
            if batch.identified is not None:
                if batch.scheduled is not None:
                    self._next_due.tell(min(batch.scheduled.due_ats))
                stored = await self._coalescer.publish_new(shard_id, batch, project=project, topic=topic)
                ids = [message_id(shard_id, id_seq) for id_seq in stored.id_seqs]
                return Published(ids, stored.repeated)
            appended = await self._coalescer.publish(shard_id, batch, project=project, topic=topic)
        except NotFound:  # deleted, frozen or purged a moment ago; perhaps there is one of that name already
            if tries == _MOST_TRIES:
                raise
        else:
            if batch.scheduled is not None:
                self._next_due.tell(min(batch.scheduled.due_ats))
                return Published([message_id(shard_id, id_seq) for id_seq in id_seqs_of(batch, appended)])
            return Published(message_ids(shard_id, appended.first_seq, len(messages)))
        self._resources.drop(topic)
        known = await self._preparation.open_topic(topic, PUBLISH)
        prepared = await self._preparation.prepare(known, messages, PUBLISH, schema_seconds=PUBLISH_SECONDS)
        return await self._store(prepared, messages, tries + 1)

    def refused(self, topic_name: str, error: BrokerError) -> None:
        """Count a publish request that was answered with an error."""
        exists = self._resources.known_topic(topic_name) is not None
        counts = self._counters.topic(topic_name) if exists else self._counters.unknown_topic()
        counts[PUBLISH_REQUESTS.get(error.code, PUBLISH_REQUESTS["INTERNAL"])] += 1
