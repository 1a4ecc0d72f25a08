"""Implements the calls about topics."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from broker.access.policies.policy_rows import forget_policy
from broker.core.catalog import topic_logs
from broker.core.catalog import topic_rows as topics
from broker.core.context.core import Core
from broker.core.resources.resource_field import ResourceField, not_supported, resolved
from broker.core.resources.topic_loss import begin_topic_loss, measure_topic
from broker.core.resources.topic_view import BASIC, TopicView
from broker.db.driver.database import ResourceConnection
from broker.model.errors import AlreadyExists, BrokerError, FailedPrecondition, InvalidArgument
from broker.model.field_mask import Update, check_field_mask
from broker.model.kept import check_kept
from broker.model.names import check_name, check_project, leaf, not_found, project_of
from broker.model.page import Page, cut_page
from broker.model.preview import UNGUARDED, Preview, Safeguards
from broker.model.priorities import Priorities
from broker.model.publish_property import PublishProperty
from broker.model.topic import IMMUTABLE_FIELDS, MUTABLE_FIELDS, Topic, check_topic


def topic_not_found(name: str) -> BrokerError:
    """NotFound, or InvalidArgument for a name that no topic can have."""
    return not_found("Topic not found", name, "topics")


async def existing_topic(connection: ResourceConnection, name: str) -> Topic:
    """Raises NotFound."""
    topic = await topics.find_topic(connection, name=name)
    if topic is None:
        raise topic_not_found(name)
    return topic


class TopicService:
    """The topics of Google's Publisher service.  Every change is announced to all processes."""

    def __init__(
        self,
        core: Core,
        *,
        supported: Collection[PublishProperty],
        shards_per_topic: int = 1,
    ) -> None:
        """`supported`: the properties that publishes know, which features may still add to."""
        self._admission = core.admission
        self._fields: list[ResourceField[Topic]] = []
        self._views: dict[str, TopicView] = {}
        self._supported = supported
        self._database = core.database
        self._clock = core.clock
        self._wake_ups = core.wake_ups
        self._shards_per_topic = shards_per_topic

    def add_fields(self, fields: Iterable[ResourceField[Topic]]) -> None:
        """Let a feature check and resolve its fields, from before the first call on."""
        self._fields.extend(fields)

    def add_views(self, views: Mapping[str, TopicView]) -> None:
        """Let a feature add views of lists, by name, from before the first call on."""
        self._views.update(views)

    def find_view(self, name: str) -> TopicView | None:
        """Returns the view of this name; None: one that adds nothing.  Raises InvalidArgument."""
        if name in ("", BASIC):
            return None
        if name not in self._views:
            raise InvalidArgument(f"view is one of {', '.join([BASIC, *self._views])} (view={name[:100]}).")
        return self._views[name]

    async def create_topic(self, wanted: Topic) -> Topic:
        """Raises InvalidArgument, AlreadyExists, NotFound (a schema or revision), ResourceExhausted (a quota).

        FailedPrecondition: it has an extension that this broker does not have.
        """
        check_name(wanted.name, "topics")
        check_topic(wanted)
        check_kept(wanted.kept)
        self._check_supported(wanted, None)
        for field in self._fields:
            if field.check is not None:
                await field.check(wanted)
        async with self._database.transaction() as connection:
            wanted = await resolved(self._fields, connection, wanted, None)
            topic = await topics.insert_topic(
                connection,
                topic=wanted,
                shard_count=wanted.extensions.shards or self._shards_per_topic,
                now=self._clock.now(),
            )
            if topic is not None:
                await self._admission.check_count(connection, project_of(topic.name), "topics")
                await forget_policy(connection, schema=self._database.schema, resource=topic.name)
        if topic is None:
            raise AlreadyExists(f"Topic already exists (resource={leaf(wanted.name)}).")
        await self._wake_ups.announce(wanted.name)
        return topic

    async def get_topic(self, name: str) -> Topic:
        """Raises NotFound."""
        async with self._database.transaction() as connection:
            topic = await topics.find_topic(connection, name=name)
        if topic is None:
            raise topic_not_found(name)
        return topic

    async def update_topic(self, update: Update[Topic]) -> Topic:
        """Change what the mask names.  Raises InvalidArgument, NotFound; nothing is changed then."""
        if not update.paths:
            await self.get_topic(update.name)  # raises NotFound before other errors, as Google does
        check_field_mask(update.paths, resource="Topic", mutable=MUTABLE_FIELDS, immutable=IMMUTABLE_FIELDS)
        named = [field for field in self._fields if field.path in update.fields]
        for field in named:
            if field.check is not None:
                await field.check(update.wanted(await self.get_topic(update.name)))
        async with self._database.transaction() as connection:
            current = await topics.lock_topic(connection, name=update.name)
            if current is None:
                raise topic_not_found(update.name)
            topic = current.updated(update.wanted(current), update.fields)
            check_topic(topic)
            if topic.kept != current.kept:
                check_kept(topic.kept)
            self._check_supported(topic, current)
            topic = await resolved(named, connection, topic, current)
            await topics.update_topic(connection, topic=topic)
            names = await self._add_shards(connection, current, topic.extensions.shards)
            names = [*names, *await self._add_levels(connection, current, topic.extensions.priorities)]
            topic = await topics.find_topic(connection, name=topic.name) or topic
        await self._wake_ups.announce(topic.name, *names)
        return topic

    def _check_supported(self, topic: Topic, current: Topic | None) -> None:
        """Raise FailedPrecondition for a new extension that this broker does not have."""
        for each in topic.publish_properties:
            is_new = current is None or topic.value_of(each) != current.value_of(each)
            if is_new and each not in self._supported:
                raise not_supported(each.path, topic.name)

    async def _add_shards(self, connection: ResourceConnection, topic: Topic, wanted: int | None) -> Sequence[str]:
        """Adds shards to a topic that is locked.  Returns the subscriptions that have to be notified.

        Raises FailedPrecondition for fewer shards than there are.
        """
        there = len(topic.plain_shard_ids)
        if wanted is None or wanted == there:
            return ()
        if wanted < there:
            raise FailedPrecondition(
                f"The topic has {there} shards (extensions.shards={wanted}): there may be more, but not fewer, "
                "since messages, and the order of ordering keys, stay in the shards in which they are."
            )
        return await topic_logs.add_shards(connection, topic=topic, count=wanted - there, now=self._clock.now())

    async def _add_levels(
        self, connection: ResourceConnection, topic: Topic, wanted: Priorities | None
    ) -> Sequence[str]:
        """Adds the priority levels that the topic has not had yet; messages in the shards of others still go first.

        Returns the subscriptions that have to be notified of a change.
        """
        if wanted == topic.extensions.priorities:
            return ()
        levels = set() if wanted is None else set(range(wanted.least)) - set(topic.levels.values())
        current = await topics.find_topic(connection, name=topic.name) or topic
        return await topic_logs.add_levels(connection, topic=current, levels=sorted(levels), now=self._clock.now())

    async def delete_topic(self, name: str, safeguards: Safeguards = UNGUARDED) -> Preview | None:
        """Delete a topic; its subscriptions stay, with their backlog.

        If `safeguards` ask for a preview, deletes nothing and returns the losses: the messages that the topic
        retains and the scheduled messages.  Raises NotFound, Aborted, FailedPrecondition.
        """
        async with self._database.transaction() as connection:
            topic = await topics.lock_topic(connection, name=name)
            if topic is None:
                raise topic_not_found(name)
            loss = await begin_topic_loss(connection, topic, safeguards, now=self._clock.now())
            if loss is not None and safeguards.validate_only:  # before the shards are closed: publishes go on
                return safeguards.previewed(
                    await measure_topic(connection, loss, retention=topic.message_retention)
                )
            orphaned = await topics.delete_topic(connection, topic=topic)
            if loss is not None:
                safeguards.check(await measure_topic(connection, loss, retention=topic.message_retention))
            await forget_policy(connection, schema=self._database.schema, resource=name)
        await self._wake_ups.announce(name, *orphaned)
        return None

    async def list_topics(self, project: str, page: Page) -> tuple[Sequence[Topic], str]:
        """A page of a project's topics by name, and the token of the next page.

        Raises InvalidArgument for a project that cannot be, unless it has topics.
        """
        async with self._database.transaction() as connection:
            page = await topics.cut_page_of_topics(connection, project=project, page=page)
            found = await topics.list_topics(connection, project=project, page=page)
        if not found:
            check_project(project)
        return cut_page(found, page.size, lambda topic: topic.name)

    async def list_topic_subscriptions(self, name: str, page: Page) -> tuple[Sequence[str], str]:
        """A page of the names of the subscriptions attached to a topic.  Raises NotFound."""
        topic = await self.get_topic(name)
        async with self._database.transaction() as connection:
            names = await topics.list_topic_subscriptions(connection, topic_id=topic.topic_id, page=page)
        return cut_page(names, page.size, str)

    async def list_topic_snapshots(self, name: str, page: Page) -> tuple[Sequence[str], str]:
        """A page of the names of a topic's snapshots.  Raises NotFound."""
        topic = await self.get_topic(name)
        async with self._database.transaction() as connection:
            names = await topics.list_topic_snapshots(connection, topic_id=topic.topic_id, page=page)
        return cut_page(names, page.size, str)
