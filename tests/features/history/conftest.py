"""History on a database, at times that the test gives."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.db.driver.database import Database
from broker.features.history.recorder import HistoryRecorder
from broker.features.history.roll_ups import maintain_history
from broker.features.history.service import History, HistoryService, Interval
from broker.observability.metrics.counters import Counters
from tests.fixtures.core import make_core

TOPIC, SUBSCRIPTION = "projects/p/topics/t", "projects/p/subscriptions/s"
PUBLISHED, SENT = "pubsub_topic_published_messages_total", "pubsub_subscription_sent_messages_total"
UNDELIVERED = "pubsub_subscription_num_undelivered_messages"
AGE = "pubsub_subscription_oldest_unacked_message_age_seconds"


class SetClock(DatabaseClock):
    """Stands still until it is set."""

    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time


@dataclass
class Process:
    """A broker's first process, which counts and records."""

    recorder: HistoryRecorder
    counters: Counters


@dataclass
class Recorded:
    """The history of a fleet."""

    database: Database
    tasks: Tasks
    clock: SetClock = field(default_factory=lambda: SetClock(datetime(2026, 3, 1, 12, tzinfo=UTC)))

    def process(self, counters: Counters | None = None) -> Process:
        """`counters`: of the process that it replaces."""
        counters = counters or Counters()
        return Process(
            HistoryRecorder(make_core(self.database, self.clock, self.tasks, counters=counters)), counters
        )

    async def pass_by(self, process: Process, seconds: int = 10) -> None:
        """The process records what it has counted in the seconds that now end."""
        self.clock.time += timedelta(seconds=seconds)
        await process.recorder.record_counters(self.clock.time - timedelta(seconds=10))

    async def sample(
        self,
        number: int = 1,
        *,
        name: str = SUBSCRIPTION,
        undelivered: int,
        oldest: datetime | None = None,
        outstanding: int = 0,
        dead_letters: int = 0,
    ) -> None:
        """A subscription with a sample of its lag that is taken now."""
        async with self.database.connection() as connection:
            await connection.execute(
                "INSERT INTO subscriptions (subscription_id, name, topic, topic_id, retain_acked_messages,"
                " message_retention, enable_message_ordering, detached, created_at, last_active_at)"
                " OVERRIDING SYSTEM VALUE VALUES (%s, %s, '', 0, false, '1h', false, false, now(), now())"
                " ON CONFLICT DO NOTHING",
                [number, name],
            )
            await connection.execute("DELETE FROM lag_samples WHERE subscription_id = %s", [number])
            await connection.execute(
                "INSERT INTO lag_samples (subscription_id, sampled_at, undelivered_messages, is_estimated,"
                " undelivered_bytes, oldest_unacked_at, outstanding_messages, blocked_messages, dead_letters,"
                " published_messages, state, details) VALUES (%s, %s, %s, false, 100, %s, %s, 0, %s, 0, '', '{}')",
                [number, self.clock.time, undelivered, oldest, outstanding, dead_letters],
            )

    async def maintain(self) -> None:
        async with self.database.connection() as connection:
            await maintain_history(connection, now=self.clock.time)

    async def read(
        self, metric: str = PUBLISHED, resource: str = TOPIC, *, seconds: int = 3600, period: int | None = None
    ) -> History:
        return await HistoryService(self.database, self.clock).list_time_series(
            "projects/p",
            metrics=[metric],
            resource=resource,
            interval=Interval(length=timedelta(seconds=seconds)),
            alignment=None if period is None else timedelta(seconds=period),
        )

    async def amounts(
        self, metric: str = PUBLISHED, resource: str = TOPIC, *, seconds: int = 3600, period: int | None = None
    ) -> dict[datetime, int]:
        """By the starts of periods; of a metric without a label."""
        history = await self.read(metric, resource, seconds=seconds, period=period)
        return {point.start_time: point.amount for series in history.series for point in series.points}

    async def count(self, table: str) -> int:
        async with self.database.connection() as connection:
            row = await (await connection.execute(f"SELECT count(*) FROM {table}")).fetchone()  # type: ignore[arg-type]
            assert row is not None
            return int(row[0])


@pytest.fixture
async def recorded(database: Database) -> AsyncIterator[Recorded]:
    tasks = Tasks()
    yield Recorded(database, tasks)
    await tasks.close()
