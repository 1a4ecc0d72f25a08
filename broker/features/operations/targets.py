"""The topics on which operations publish within their steps, under the same rules as a publish (G2)."""

from collections.abc import Sequence

from broker.core.context.core import Core
from broker.core.log.appending import ShardClosed, ShardFrozen, append_to_shards
from broker.core.publishing.preparation import Preparation, Prepared, batches_of
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.core.publishing.publishing_rules import COPY
from broker.db.driver.hot_connection import HotConnection
from broker.features.operations.operation import Operation
from broker.model.errors import Aborted, InvalidArgument
from broker.model.message import NewMessage
from broker.model.topic import Topic


class Targets:
    """The target topics of the operations of one process."""

    def __init__(
        self, core: Core, preparation: Preparation, check_publisher: CheckPublisher = allow_any_publisher
    ) -> None:
        self._clock = core.clock
        self._resources = core.resources
        self._preparation = preparation
        self._check_publisher = check_publisher

    async def topic(self, name: str, topic_id: int) -> Topic:
        """Returns the topic.  Raises NotFound (it was deleted, even if another topic has its name now)."""
        return await self._resources.topic_meant(name, topic_id)

    async def check_open(self, topic: Topic, operation: Operation) -> None:
        """Checks that an operation may publish on a topic.

        Raises PermissionDenied (the project of the operation may not publish there), FailedPrecondition (it has
        transforms), Unavailable; Held (it is frozen, there is no space, or a quota is used up: the operation
        waits).
        """
        await self._check_publisher(operation.project, topic.name)
        await self._preparation.check_open(topic, COPY)
        await self._preparation.check_quotas(topic, COPY, operation.started_by)

    async def acceptable(
        self, topic: Topic, messages: Sequence[NewMessage]
    ) -> tuple[Prepared | None, Sequence[int]]:
        """Prepares the messages that break no rule, and returns them with their indexes."""
        prepared, numbers, refused = await self._preparation.prepare_some(topic, messages, COPY)
        for error in refused.values():
            if not isinstance(error, InvalidArgument):
                raise error
        return prepared, numbers

    async def append(self, connection: HotConnection, prepared: Prepared, *, started_by: str) -> Sequence[int]:
        """Publishes messages in the transaction of `connection`; locks the heads of shards last.  Returns the
        shards.

        Raises Aborted, PartitionMissing.
        """
        batches = batches_of([prepared])
        try:
            await append_to_shards(connection, batches=batches, now=self._clock.now())
        except (ShardClosed, ShardFrozen) as error:  # what was known of it is old
            self._resources.drop(prepared.topic.name)
            raise Aborted(f"{prepared.topic.name} takes nothing just now.") from error
        self._preparation.charge([prepared], COPY, started_by)
        return list(batches)
