"""Finds conditions that operators want to know of, and publishes events to the topics of their projects (F4).

Every process has this worker, and one at a time runs.  The conditions that are found and those that were reported
are compared in one transaction, which also stores the events to publish: a crash loses none, and may publish one
twice, with the same `ce-id`.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta

from broker.core.catalog.subscription_rows import list_alerting_subscriptions
from broker.core.context.core import Core
from broker.core.context.event import Kind, Subject
from broker.core.lag.lags import AT_A_TIME, read_lags
from broker.core.publishing.preparation import Preparation
from broker.core.publishing.publish_coalescer import PublishCoalescer
from broker.core.publishing.publish_rights import CheckPublisher, allow_any_publisher
from broker.core.publishing.publishing_rules import EVENT
from broker.db.driver.database import ResourceConnection
from broker.db.driver.replica_reads import ReplicaReads
from broker.features.events import rows as store
from broker.features.events.event_detection import LAGS, STATES, Found, compare, event_message, storage_subject
from broker.features.events.lag_alerts import lags_to_report
from broker.features.events.rows import WaitingEvent
from broker.model.errors import BrokerError, NotFound, PermissionDenied
from broker.model.names import leaf, project_of
from broker.observability.log import fields_of

EVENT_SECONDS = 5.0
LAG_SECONDS = 15.0
_BATCH = 100
_UNPUBLISHED = "events that cannot be published"


class EventWatch:
    """Publishes events, even past quotas and storage limits: some events report that one of these is reached."""

    def __init__(
        self,
        core: Core,
        preparation: Preparation,
        publishes: PublishCoalescer,
        check_publisher: CheckPublisher = allow_any_publisher,
        *,
        late: timedelta = store.LATE,
    ) -> None:
        """`late`: so long after its publish time a dead letter may be committed."""
        self._database = core.database
        self._replica_reads = ReplicaReads(
            core.database
        )  # what is told is compared with what was told: on the primary
        self._clock = core.clock
        self._resources = core.resources
        self._preparation = preparation
        self._publishes = publishes
        self._states = core.states
        self._storage = core.storage
        self._late = late
        self._check_publisher = check_publisher

    async def run_once(self) -> int:
        """Look, and publish what there is to tell.  Returns how many events were published."""
        async with self._database.transaction() as connection:
            topics = await store.read_event_topics(connection)
            if topics and await store.is_our_pass(connection):
                found = await store.find_conditions(connection, now=self._clock.now(), late=self._late)
                found += self._of_disk(topics)
                found += await self._find_blocked(connection)
                await self._report(connection, found, STATES)
        published, stuck = 0, set[str]()
        while topics and (count := await self._publish_some(topics, stuck)):
            published += count
        return published

    def _of_disk(self, projects: Iterable[str]) -> list[Found]:
        """The disk of the embedded database, which the database itself does not know."""
        disk = self._storage.disk
        if disk is None or not disk.is_low:
            return []
        why = f"publishing is paused: {disk.finding}"
        return [Found(storage_subject(project, "disk"), why) for project in projects]

    async def _find_blocked(self, connection: ResourceConnection) -> list[Found]:
        """Subscriptions whose dead letters cannot go to their topic.  Raises Unavailable."""
        found = []
        for policy in await store.list_dead_letter_policies(connection):
            why = "" if policy.has_topic else f"there is no topic {policy.topic}"
            try:
                await self._check_publisher(policy.project, policy.topic)
            except PermissionDenied as error:
                why = error.message
            if why:
                found.append(Found(Subject(policy.project, "deadLetterTopic", policy.subscription), why))
        return found

    async def check_lags(self) -> None:
        """Checks the lags of subscriptions.  `run_once` publishes the events."""
        async with self._database.transaction() as connection:
            topics = await store.read_event_topics(connection)
            if topics and await store.is_our_pass(connection):
                alerting = await list_alerting_subscriptions(connection, projects=topics)
                watched = [s for s in alerting if s.topic != topics[project_of(s.name)]]
                found: list[Found] = []
                for first in range(0, len(watched), AT_A_TIME):
                    some = watched[first : first + AT_A_TIME]
                    lags = await read_lags(self._database, self._replica_reads, self._clock, some)
                    found += [one for lag in lags for one in lags_to_report(lag, self._clock.now())]
                await self._report(connection, found, LAGS)

    async def _report(self, connection: ResourceConnection, found: list[Found], kinds: Collection[Kind]) -> None:
        comparison = compare(await store.read_reported(connection, kinds=kinds), found, now=self._clock.now())
        await store.write_reported(connection, holds=comparison.holds, over=comparison.over)
        await store.insert_events(connection, events=comparison.events)

    async def _publish_some(self, topics: dict[str, str], stuck: set[str]) -> int:
        """Publish the oldest; the projects whose events cannot be published are added to `stuck`."""
        done = []
        async with self._database.transaction() as connection:
            for event in await store.lock_waiting_events(connection, limit=_BATCH, without=stuck):
                if await self._publish(event, topics.get(event.project, "")):
                    done.append(event.event_id)
                else:
                    stuck.add(event.project)
            dropped = await store.delete_events(connection, event_ids=done, before=self._clock.now() - store.KEPT)
        if dropped:
            self._states.report("events", f"{dropped} events were dropped: they could not be published for a day")
        return len(done)

    async def _publish(self, event: WaitingEvent, topic_name: str) -> bool:
        """Publish an event.  Returns False if it has to be tried again."""
        if not topic_name:
            return True  # the project has no topic for events any more
        try:
            message = event_message(event.event_id, event.body)
            prepared = await self._preparation.open_and_prepare(topic_name, [message], EVENT)
            await self._preparation.admit(prepared, EVENT)
            [part] = prepared.parts
            await self._publishes.publish(part.shard_id, part.batch, project=event.project, topic=topic_name)
            self._preparation.charge([prepared], EVENT)
        except BrokerError as error:
            if isinstance(error, NotFound):
                self._resources.drop(topic_name)
            what = f"events of {leaf(event.project)} wait, for they cannot be published to {topic_name}"
            self._states.begins(
                _UNPUBLISHED, event.project, what, str(error).rstrip("."), fields=fields_of(topic_name)
            )
            return False
        self._states.ends(_UNPUBLISHED, event.project, f"events of {leaf(event.project)} are published again")
        return True
