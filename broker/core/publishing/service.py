"""Publisher.Publish (A1, B1): checks and packs messages, and stores them through the coalescer."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from broker.core.context.core import Core
from broker.core.log.packing import Part
from broker.core.process.next_due import NextDue
from broker.core.publishing.preparation import Preparation, Prepared, Published, merged, published_part
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.core.publishing.publishing_rules import PUBLISH, PUBLISH_SECONDS
from broker.model.errors import BrokerError, NotFound
from broker.model.message import NewMessage
from broker.model.message_id import message_ids
from broker.model.names import project_of
from broker.observability.metrics.families import PUBLISH_REQUESTS

if TYPE_CHECKING:  # OpenTelemetry is imported only if tracing is enabled
    from broker.observability.tracing import Tracing

_MOST_TRIES = 10  # of a publish to a topic that exists, and has new shards each time


class PublishService:
    """Publisher.Publish."""

    def __init__(
        self, core: Core, coalescer: PublishCoalescer, preparation: Preparation, *, next_due: NextDue
    ) -> None:
        self._counters = core.counters
        self._next_due = next_due
        self._resources = core.resources
        self._admission = core.admission
        self._coalescer = coalescer
        self._preparation = preparation

    @property
    def is_traced(self) -> bool:
        """Whether publishes are traced, so that the `traceparent` of a request matters."""
        return self._counters.tracing is not None

    async def check_capacity(self, topic_name: str, principal: str = "") -> None:
        """Raise ResourceExhausted or Unavailable if a publish would be refused, before its messages are decoded.

        The queue is checked for topics of one shard only: otherwise the shard depends on the messages.
        """
        topic = await self._preparation.check_capacity(topic_name, PUBLISH, principal)
        if topic is not None and len(topic.shard_ids) == 1:
            self._coalescer.check_capacity(topic.shard_ids[0])

    def publish(
        self, topic_name: str, messages: Sequence[NewMessage], principal: str = "", traceparent: bytes = b""
    ) -> Coroutine[Any, Any, Published]:
        """Store messages durably and return their ids.  `principal`: the publisher ("": unknown); `traceparent`:
        the trace context of the request, if it has one.

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
        prepared = await self._preparation.open_and_prepare(
            topic_name, messages, PUBLISH, schema_seconds=PUBLISH_SECONDS
        )
        if prepared.reservations or self._admission.is_metered:
            await self._preparation.admit(prepared, PUBLISH, principal)
            self._preparation.charge([prepared], PUBLISH, principal)
        if len(prepared.parts) == 1:
            return await self._append(prepared.topic.name, prepared.parts[0], messages)
        return await self._append_each(prepared, messages)

    async def _append_each(self, prepared: Prepared, messages: Sequence[NewMessage], tries: int = 1) -> Published:
        """Append each part on its own."""
        appends = [
            self._append(
                prepared.topic.name,
                part,
                messages if part.indexes is None else [messages[index] for index in part.indexes],
                tries,
            )
            for part in prepared.parts
        ]
        published: list[Published] = []
        for answer in await asyncio.gather(*appends, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
            published.append(answer)
        return merged(prepared, published)

    async def _append(self, topic: str, part: Part, messages: Sequence[NewMessage], tries: int = 1) -> Published:
        """Append the messages of one part.  If its shard was closed meanwhile, prepare them again."""
        shard_id, batch, _ = part
        project = project_of(topic)
        try:
            if batch.identified is not None:
                if batch.scheduled is not None:
                    self._next_due.notify(min(batch.scheduled.due_ats))
                stored = await self._coalescer.publish_new(shard_id, batch, project=project, topic=topic)
                return published_part(part, stored)
            appended = await self._coalescer.publish(shard_id, batch, project=project, topic=topic)
        except NotFound:  # deleted, frozen or purged a moment ago; a new topic may have the name
            if tries == _MOST_TRIES:
                raise
        else:
            if batch.scheduled is not None:
                self._next_due.notify(min(batch.scheduled.due_ats))
                return published_part(part, appended)
            return Published(message_ids(shard_id, appended.first_seq, len(messages)))
        self._resources.drop(topic)
        prepared = await self._preparation.open_and_prepare(
            topic, messages, PUBLISH, schema_seconds=PUBLISH_SECONDS
        )
        return await self._append_each(prepared, messages, tries + 1)

    def refused(self, topic_name: str, error: BrokerError) -> None:
        """Count a publish request that was answered with an error."""
        exists = self._resources.known_topic(topic_name) is not None
        counts = self._counters.topic(topic_name) if exists else self._counters.unknown_topic()
        counts[PUBLISH_REQUESTS.get(error.code, PUBLISH_REQUESTS["INTERNAL"])] += 1
