"""Looks for what operators want to be told of, and publishes it to the topics that projects have chosen (F4).

Every process has one; one at a time looks.  What is found and what was told of are compared in one transaction,
which also leaves the events to be published: a crash loses none, and may publish one twice, with one `ce-id`.
"""

from datetime import timedelta

from broker.domain.errors import BrokerError, NotFound
from broker.domain.event import compare, event_message
from broker.domain.names import leaf
from broker.runtime.database_clock import DatabaseClock
from broker.runtime.publish_coalescer import PublishCoalescer
from broker.runtime.resource_cache import ResourceCache
from broker.store.driver.database import Database
from broker.store.log.messages import encode_messages
from broker.store.resources import events as store
from broker.store.resources.events import WaitingEvent
from broker.telemetry.state_changes import StateChanges

EVENT_SECONDS = 5.0
_BATCH = 100
_UNPUBLISHED = "events that cannot be published"


class EventWatch:
    """Publishes take no part in quotas: else the news that one is used up could not be published."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        resources: ResourceCache,
        publishes: PublishCoalescer,
        states: StateChanges,
        *,
        late: timedelta = store.LATE,
    ) -> None:
        """`late`: so long after its publish time a dead letter may be committed."""
        self._database = database
        self._clock = clock
        self._resources = resources
        self._publishes = publishes
        self._states = states
        self._late = late

    async def run_once(self) -> int:
        """Look, and publish what there is to tell.  Returns how many events were published."""
        async with self._database.transaction() as connection:
            topics = await store.read_event_topics(connection)
            if not topics:
                return 0
            if await store.is_our_look(connection):
                now = self._clock.now()
                found = await store.find_conditions(connection, now=now, late=self._late)
                look = compare(await store.read_told(connection), found, now=now)
                await store.write_told(connection, holds=look.holds, over=look.over)
                await store.insert_events(connection, events=look.events)
        published, stuck = 0, set[str]()
        while count := await self._publish_some(topics, stuck):
            published += count
        return published

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
            self._states.tell("events", f"{dropped} events were dropped: they could not be published for a day")
        return len(done)

    async def _publish(self, event: WaitingEvent, topic_name: str) -> bool:
        """Whether it need not be published any more."""
        if not topic_name:
            return True  # nobody wants it by now
        try:
            topic = await self._resources.topic(topic_name)
            batch = encode_messages([event_message(event.event_id, event.body)])
            await self._publishes.publish(topic.shard_ids[0], batch, project=event.project)
        except BrokerError as error:
            if isinstance(error, NotFound):
                self._resources.drop(topic_name)
            what = f"events of {leaf(event.project)} wait, for they cannot be published to {topic_name}"
            self._states.begins(_UNPUBLISHED, event.project, what, str(error).rstrip("."))
            return False
        self._states.ends(_UNPUBLISHED, event.project, f"events of {leaf(event.project)} are published again")
        return True
