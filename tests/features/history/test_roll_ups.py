"""Points are kept more coarsely as they grow old, and say the same."""

import random
from collections import Counter
from datetime import datetime, timedelta

import pytest

from broker.model.history_tiers import floor
from broker.observability.metrics.families import PUBLISHED_MESSAGES
from tests.features.history.conftest import PUBLISHED, SUBSCRIPTION, TOPIC, UNDELIVERED, Recorded

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize("seed", range(3))
async def test_every_period_says_what_was_counted_in_it(recorded: Recorded, seed: int) -> None:
    """Whenever history is maintained, and however long nothing is counted or nothing is maintained."""
    chance = random.Random(seed)
    processes = [recorded.process(), recorded.process()]
    counted: Counter[datetime] = Counter()
    began = recorded.clock.time
    for _ in range(160):
        for process in processes:
            count = chance.choice([0, 0, 1, 5])
            process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += count
            counted[recorded.clock.time] += count
        now = recorded.clock.time
        for process in processes:
            recorded.clock.time = now
            await recorded.pass_by(process, 10)
        if chance.random() < 0.1:
            await recorded.maintain()
        if chance.random() < 0.02:
            recorded.clock.time += chance.randrange(600) * 10 * SECOND
    elapsed = int((recorded.clock.time - began).total_seconds()) + 600
    for period in (600, 1200, *((60, 120) if elapsed < 86_000 else ())):
        expected: Counter[datetime] = Counter()
        for start, count in counted.items():
            expected[floor(start, period)] += count
        for _ in range(2):
            assert await recorded.amounts(seconds=elapsed, period=period) == +expected
            await recorded.maintain()
    recent = {start: n for start, n in counted.items() if n and start >= recorded.clock.time - timedelta(hours=1)}
    assert await recorded.amounts(seconds=3600, period=10) == recent


async def test_of_gauges_the_highest_value_of_a_period_is_kept(recorded: Recorded) -> None:
    process, start = recorded.process(), recorded.clock.time
    for undelivered in (4, 9, 2, 0):
        await recorded.sample(undelivered=undelivered)
        await process.recorder.record_lag(recorded.clock.time)
        recorded.clock.time += 10 * SECOND
    values = {start: 4, start + 10 * SECOND: 9, start + 20 * SECOND: 2}
    assert await recorded.amounts(UNDELIVERED, SUBSCRIPTION) == values
    recorded.clock.time += timedelta(minutes=30)
    for _ in range(2):
        for period in (60, 600):
            assert await recorded.amounts(UNDELIVERED, SUBSCRIPTION, period=period) == {start: 9}
        await recorded.maintain()


async def test_each_resolution_is_kept_for_its_time_and_then_nothing_is_left(recorded: Recorded) -> None:
    process, start = recorded.process(), recorded.clock.time
    process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 6
    await recorded.pass_by(process)
    for after, kept in (
        (timedelta(minutes=5), {10, 60}),
        (timedelta(minutes=30), {10, 60, 600}),
        (timedelta(hours=2), {60, 600}),
        (timedelta(hours=25), {600}),
        (timedelta(days=13), {600}),
        (timedelta(days=15), set()),
    ):
        recorded.clock.time = start + after
        await recorded.maintain()
        async with recorded.database.connection() as connection:
            found = await connection.execute("SELECT DISTINCT resolution FROM history_points")
            assert {row[0] for row in await found.fetchall()} == kept
        if after < timedelta(days=14):
            seconds = int(after.total_seconds()) + 600
            assert sum((await recorded.amounts(seconds=seconds)).values()) == 6
    assert await recorded.count("history_series") > 0
    recorded.clock.time = start + timedelta(days=18)
    await recorded.maintain()
    assert await recorded.count("history_series") == 0


async def test_a_long_time_without_maintenance_is_caught_up_with(recorded: Recorded) -> None:
    process = recorded.process()
    for _ in range(5):
        process.counters.topic(TOPIC)[PUBLISHED_MESSAGES] += 1
        await recorded.pass_by(process)
        recorded.clock.time += timedelta(hours=9)
    await recorded.maintain()
    assert sum((await recorded.amounts(PUBLISHED, TOPIC, seconds=50 * 3600)).values()) == 5
    async with recorded.database.connection() as connection:
        found = await connection.execute("SELECT count(*) FROM history_points WHERE resolution = 10")
        assert await found.fetchone() == (0,)
