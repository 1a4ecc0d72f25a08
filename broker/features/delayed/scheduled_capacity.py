"""Limits the number of scheduled messages of a topic, without a counter (J1).

A process counts the scheduled messages, and may add half of its share of the rest before it counts again; for the
last thousand it counts each time.  So it counts rarely while there is capacity, and all processes together exceed
the limit by the messages of a few requests at most.  Topics without scheduled messages cost nothing.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.db.driver.database import Database
from broker.features.delayed.listed_rows import count_scheduled
from broker.model.errors import QuotaExceeded
from broker.model.names import leaf
from broker.model.publish_limits import MAX_MESSAGES
from broker.model.topic import Topic

KNOWN_SECONDS = 60.0  # how long a check holds: other processes may have come
FULL_SECONDS = 1.0  # how long a topic without room is taken to be so
_MOST_KNOWN = 10_000  # topics


@dataclass(slots=True)
class _Known:
    at: float = float("-inf")
    available: int = 0  # that there was
    left: int = 0  # of that which this process may take
    counting: asyncio.Lock = field(default_factory=asyncio.Lock)


class ScheduledCapacity:
    """The limit on scheduled messages, as one process keeps it.

    `most`: how many of a topic; `processes`: how many processes run.
    """

    def __init__(
        self,
        database: Database,
        most: int,
        processes: Callable[[], int],
        *,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._most = most
        self._processes = processes
        self._ticks = ticks
        self._known: dict[int, _Known] = {}

    async def take(self, topic: Topic, count: int) -> None:
        """Room for so many.  Raises QuotaExceeded: nothing has been taken."""
        known = self._known.get(topic.topic_id)
        if known is None:
            known = self._known[topic.topic_id] = _Known()
        if not self._suffices(known, count):
            async with known.counting:
                if not self._suffices(known, count) and not self._is_full(known, count):
                    await self._count(topic, known)
        if known.left < count:
            raise self._refusal(topic)
        known.left -= count

    def _suffices(self, known: _Known, count: int) -> bool:
        return known.left >= count and self._ticks() - known.at < KNOWN_SECONDS

    def _is_full(self, known: _Known, count: int) -> bool:
        return known.available < count and self._ticks() - known.at < FULL_SECONDS

    async def _count(self, topic: Topic, known: _Known) -> None:
        if len(self._known) > _MOST_KNOWN:
            self._known = {topic.topic_id: known}
        async with self._database.hot() as hot:
            waiting = await count_scheduled(hot, shard_ids=topic.shard_ids, most=self._most)
        known.at, known.available = self._ticks(), max(self._most - waiting, 0)
        known.left = max(known.available // (2 * max(self._processes(), 1)), min(known.available, MAX_MESSAGES))

    def _refusal(self, topic: Topic) -> QuotaExceeded:
        return QuotaExceeded(
            f"Too many messages of the topic wait for their time: {self._most:,} may (max_scheduled_messages="
            f"{self._most}, resource={leaf(topic.name)}). Cancel some, or wait until their time has come.",
            log_message="Too many messages of a topic wait for their time.",
            retry_seconds=FULL_SECONDS,
        )
