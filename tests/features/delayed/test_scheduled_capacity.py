"""What may wait for its time is bounded, however many processes publish (J1)."""

from collections.abc import Callable

import pytest

from broker.features.delayed.scheduled_capacity import ScheduledCapacity
from broker.model.errors import QuotaExceeded
from tests.fixtures.log import Log

MOST = 10_000


class Capacities:
    """Of `count` processes, at one database, whose time is in the test's hand."""

    def __init__(self, log: Log, count: int) -> None:
        self.log, self.now, self.waiting = log, 0.0, 0
        ticks: Callable[[], float] = lambda: self.now  # noqa: E731
        self.all = [ScheduledCapacity(log.database, MOST, lambda: count, ticks=ticks) for _ in range(count)]

    async def publish(self, process: int, count: int) -> None:
        await self.all[process].take(self.log.topic, count)
        await self.add(count)

    async def add(self, count: int) -> None:
        first = 500_000_000_000_001 + self.waiting
        await self.log.execute(
            f"""
            INSERT INTO scheduled_messages (shard_id, id_seq, due_at, accepted_at, size, data)
            SELECT {self.log.shard_id}, n, now(), now(), 0, ''
            FROM generate_series({first}, {first + count - 1}) AS n
            """
        )
        self.waiting += count


@pytest.mark.parametrize("processes", [1, 3])
async def test_no_more_wait_than_may_and_all_of_that(log: Log, processes: int) -> None:
    available, refused, n = Capacities(log, processes), set[int](), 0
    while len(refused) < processes:
        n += 1
        try:
            await available.publish(n % processes, 100)
        except QuotaExceeded:
            refused.add(n % processes)
    assert MOST - 100 < available.waiting <= MOST + processes * 1_000


async def test_there_is_capacity_again_a_second_after_there_is_and_others_are_seen_within_a_minute(
    log: Log,
) -> None:
    available = Capacities(log, 1)
    await available.publish(0, 1_000)
    await available.add(MOST)  # somebody else's
    await available.publish(0, 1_000)  # as it was known
    available.now = 60.0
    for _ in range(2):
        with pytest.raises(QuotaExceeded):
            await available.publish(0, 1)
        await log.execute("DELETE FROM scheduled_messages")
        available.now += 0.5
    available.now += 0.5
    await available.publish(0, 1_000)


async def test_while_there_is_no_capacity_nothing_is_counted_more_often_than_once_a_second(log: Log) -> None:
    available = Capacities(log, 1)
    await available.add(MOST)
    for _ in range(100):
        with pytest.raises(QuotaExceeded, match=f"max_scheduled_messages={MOST}"):
            await available.publish(0, 1)
    await log.execute("DROP TABLE scheduled_messages")  # a look would fail
    with pytest.raises(QuotaExceeded):
        await available.publish(0, 1)
