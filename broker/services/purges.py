"""Purging a topic: what it has is gone for everybody; an extension (G2)."""

from broker.runtime.database_clock import DatabaseClock
from broker.runtime.wake_ups import WakeUps
from broker.services.topics import topic_not_found
from broker.store.driver.database import Database
from broker.store.resources import topic_logs, topics
from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import PURGES
from broker.telemetry.state_changes import StateChanges


class PurgeService:
    """A topic that is purged has new logs: so it costs the same however much was in the old ones."""

    def __init__(
        self,
        database: Database,
        clock: DatabaseClock,
        wake_ups: WakeUps,
        states: StateChanges,
        counters: Counters,
    ) -> None:
        self._database = database
        self._clock = clock
        self._wake_ups = wake_ups
        self._states = states
        self._counts = counters.process

    async def purge_topic(self, name: str, *, by: str = "") -> None:
        """Forget all that was published before, for the topic, its subscriptions and its snapshots, which go.

        A publish under way is stored before, and forgotten, or after.  Raises NotFound.
        """
        async with self._database.transaction() as connection:
            topic = await topics.lock_topic(connection, name=name)
            if topic is None:
                raise topic_not_found(name)
            names = await topic_logs.replace_logs(connection, topic=topic, now=self._clock.now())
        self._counts[PURGES["topic"]] += 1
        self._states.tell("purged topics", f"{name} is purged{f' by {by}' if by else ''}")
        await self._wake_ups.announce(name, *names)
