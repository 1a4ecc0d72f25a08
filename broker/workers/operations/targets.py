"""Topics that operations publish on, within their steps: as a publish would, or not at all (G2)."""

from collections.abc import Sequence

from broker.domain.copying import SCHEMA_KEYS, check_takes_copies
from broker.domain.errors import Aborted, InvalidArgument, QuotaExceeded
from broker.domain.message import NewMessage
from broker.domain.names import project_of
from broker.domain.operation import Operation
from broker.domain.publish_limits import check_messages
from broker.domain.topic import Topic
from broker.runtime.core import Core
from broker.runtime.publish_rights import CheckPublisher, allow_any_publisher
from broker.runtime.schema_checks import SchemaChecks
from broker.store.driver.hot_connection import HotConnection
from broker.store.log.appending import ShardClosed, ShardFrozen, append_to_shards, encode_for_shards


def for_topic(messages: Sequence[NewMessage], topic: Topic) -> Sequence[NewMessage]:
    """Without what another schema has said of them, if the topic has one."""
    if topic.schema_settings is None:
        return messages
    return [
        NewMessage(
            data=message.data,
            attributes={key: text for key, text in message.attributes.items() if key not in SCHEMA_KEYS},
            ordering_key=message.ordering_key,
        )
        for message in messages
    ]


class Targets:
    """One for a process."""

    def __init__(
        self, core: Core, schemas: SchemaChecks, check_publisher: CheckPublisher = allow_any_publisher
    ) -> None:
        self._clock = core.clock
        self._resources = core.resources
        self._quotas = core.quotas
        self._schemas = schemas
        self._check_publisher = check_publisher

    async def topic(self, name: str, topic_id: int) -> Topic:
        """Raises NotFound: it was deleted, perhaps there is another of that name."""
        return await self._resources.topic_meant(name, topic_id)

    async def check_open(self, topic: Topic, operation: Operation) -> None:
        """Raises PermissionDenied (the project of the operation may not publish there), FailedPrecondition (it has
        transforms), Aborted (it is frozen just now, or a quota of whoever started the operation is used up: it
        waits, as it does while there is no room), Unavailable.
        """
        await self._check_publisher(operation.project, topic.name)
        self.check_room()
        if topic.freeze is not None:
            raise Aborted(topic.freeze.refusal(topic.name).message)
        check_takes_copies(topic)
        if self._quotas.on:
            try:
                gauge = self._quotas.publishing(project_of(topic.name), operation.started_by)
                gauge.check(self._quotas.ticks())
            except QuotaExceeded as error:
                raise Aborted(error.message) from error

    def check_room(self) -> None:
        """Raises Aborted: the broker takes no messages, by its storage limits."""
        if (error := self._quotas.storage.refusal()) is not None:
            raise Aborted(error.message)

    async def acceptable(self, topic: Topic, messages: Sequence[NewMessage]) -> tuple[list[int], list[str]]:
        """The numbers of those that the limits and the topic's schema let through, and what the schema gives each
        of them besides.
        """
        if not messages:
            return [], []
        try:
            return list(range(len(messages))), await self._check(topic, messages)
        except InvalidArgument:  # one by one, then
            pass
        numbers: list[int] = []
        shared: list[str] = []
        for number, message in enumerate(messages):
            try:
                shared += await self._check(topic, [message])
                numbers.append(number)
            except InvalidArgument:
                pass
        return numbers, shared

    async def _check(self, topic: Topic, messages: Sequence[NewMessage]) -> list[str]:
        for message in messages:
            check_messages([message])
        settings = topic.schema_settings
        return [] if settings is None else await self._schemas.check(project_of(topic.name), settings, messages)

    async def append(
        self,
        connection: HotConnection,
        topic: Topic,
        messages: Sequence[NewMessage],
        shared: Sequence[str],
        *,
        started_by: str,
    ) -> Sequence[int]:
        """Publish these in the transaction that `connection` is in; shard heads come last.  Returns the shards.

        Raises Aborted, PartitionMissing.
        """
        batches = encode_for_shards(topic, messages, shared)
        try:
            await append_to_shards(connection, batches=batches, now=self._clock.now())
        except (ShardClosed, ShardFrozen) as error:  # what was known of it is old
            self._resources.drop(topic.name)
            raise Aborted(f"{topic.name} takes nothing just now.") from error
        if self._quotas.on:
            gauge = self._quotas.publishing(project_of(topic.name), started_by)
            size = sum(request.size for requests in batches.values() for request in requests)
            gauge.take(self._quotas.ticks(), requests=1, messages=len(messages), size=size)
        return list(batches)
