"""Publish (A1, B1): limits, then the coalescer."""

from collections.abc import Sequence

from broker.domain.delay import due_times
from broker.domain.errors import BrokerError, NotFound
from broker.domain.message import NewMessage
from broker.domain.message_id import message_id, message_ids
from broker.domain.names import project_of
from broker.domain.publish_limits import check_messages, check_request_size
from broker.domain.topic import Topic
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.next_due import NextDue
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.quotas import Quotas
from broker.runtime.resource_cache import ResourceCache
from broker.runtime.schema_checks import SchemaChecks
from broker.runtime.shard_choice import ShardChoice
from broker.runtime.transforms import TopicTransforms
from broker.store.log.messages import Appended, EncodedMessages, encode_messages, encode_with_gaps
from broker.store.log.scheduled_messages import encode_scheduled
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import PUBLISH_REQUESTS

_MOST_TRIES = 10  # of a publish to a topic that is there, and gets new logs each time


class PublishService:
    """Publisher.Publish."""

    def __init__(
        self,
        resources: ResourceCache,
        quotas: Quotas,
        coalescer: PublishCoalescer,
        schemas: SchemaChecks,
        transforms: TopicTransforms,
        counters: Counters,
        clock: DatabaseClock,
        next_due: NextDue,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._next_due = next_due
        self._resources = resources
        self._quotas = quotas
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
        topic = self._resources.known_topic(topic_name)
        if topic is not None and self._quotas.on:
            project = project_of(topic_name)
            await self._quotas.check(self._quotas.publishing(project, principal), project)
        if topic is not None and len(topic.shard_ids) == 1:
            self._coalescer.check_room(topic.shard_ids[0])

    async def publish(
        self, topic_name: str, messages: Sequence[NewMessage], principal: str = "", traceparent: bytes = b""
    ) -> list[str]:
        """Store messages durably and return their ids, in order.  `principal`: who publishes ("": it is not known);
        `traceparent`: the request's place in a trace, if it has one.

        Raises InvalidArgument, FailedPrecondition, NotFound, ResourceExhausted, Unavailable (outcome unknown).
        """
        tracing = self._counters.tracing
        if tracing is None:
            return await self._publish(topic_name, messages, principal)
        with tracing.publishing(topic_name, [message.attributes for message in messages], traceparent) as ids:
            ids += await self._publish(topic_name, messages, principal)
            return ids

    async def _publish(self, topic_name: str, messages: Sequence[NewMessage], principal: str) -> list[str]:
        topic = await self._open_topic(topic_name)
        check_messages(messages)
        batch = await self._encode(topic, messages)
        project = project_of(topic_name)
        if self._quotas.on:
            gauge = self._quotas.publishing(project, principal)
            now = await self._quotas.check(gauge, project)
            later = 0 if batch.scheduled is None else batch.scheduled.count
            gauge.take(now, requests=1, messages=batch.count + later, size=batch.size)
        tries = 1
        while True:
            shard_id = self._shard(topic, messages)
            try:
                appended = await self._coalescer.publish(shard_id, batch, project=project, topic=topic_name)
                if batch.scheduled is not None:
                    return self._scheduled(shard_id, batch, appended)
                return message_ids(shard_id, appended.first_seq, len(messages))
            except NotFound:  # deleted, frozen or purged a moment ago; perhaps there is one of that name already
                if tries == _MOST_TRIES:
                    raise
            tries += 1
            self._resources.drop(topic_name)
            topic = await self._open_topic(topic_name)
            batch = await self._encode(topic, messages)

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
        if topic.transforms and topic.transforms_messages:
            return await self._transform(topic, messages)
        settings = topic.schema_settings
        shared = () if settings is None else await self._schemas.check(settings, messages)
        due_ats = due_times(messages, self._clock.now()) if topic.extensions.delay else None
        if due_ats is not None:
            batch = encode_scheduled(messages, due_ats, shared)
        else:
            batch = encode_messages(messages, shared)
        check_request_size(topic.name, messages, batch.size)
        return batch

    async def _transform(self, topic: Topic, messages: Sequence[NewMessage]) -> EncodedMessages:
        """What the transforms make of them is what has to be as the limits and the schema say."""
        made = await self._transforms.publish(topic, messages)
        stored = [message for message in made if message is not None]
        settings = topic.schema_settings
        shared: Sequence[str] = ()
        if stored:
            check_messages(stored)
            shared = () if settings is None else await self._schemas.check(settings, stored)
        due_ats = due_times(made, self._clock.now()) if topic.extensions.delay else None
        if due_ats is not None:
            batch = encode_scheduled(made, due_ats, shared)
        else:
            batch = encode_messages(stored, shared) if len(stored) == len(made) else encode_with_gaps(made, shared)
        if stored:
            check_request_size(topic.name, stored, batch.size)
        return batch

    def _scheduled(self, shard_id: int, batch: EncodedMessages, appended: Appended) -> list[str]:
        """The ids of a request's messages, of which some are to come later."""
        assert batch.scheduled is not None
        self._next_due.tell(min(batch.scheduled.due_ats))
        later = {index: appended.first_id_seq + n for n, index in enumerate(batch.scheduled.indexes)}
        at_once = iter(message_ids(shard_id, appended.first_seq, batch.count))
        indexes = range(batch.count + batch.scheduled.count)
        return [message_id(shard_id, later[index]) if index in later else next(at_once) for index in indexes]

    def _shard(self, topic: Topic, messages: Sequence[NewMessage]) -> int:
        if messages[0].ordering_key:
            return topic.shard_of(messages[0].ordering_key)
        return self._choice.choose(topic.topic_id, topic.shard_ids, len(messages))
