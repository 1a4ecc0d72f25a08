"""Idle subscriptions are deleted after the ttl of their expiration policy, and only those."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.expiration.expiration import GRACE, NOTICE, RECORD_LAG, RECORD_RESOLUTION, WATCH_INTERVAL
from broker.core.expiration.expiration_rows import (
    delete_expired_subscription,
    find_expired_subscriptions,
    record_activity,
    watch_idle_subscriptions,
)
from tests.fixtures.log import Log
from tests.interleavings.steps import execute, open_transaction, until_waiting

DAY = timedelta(days=1)
TTL = 4 * DAY
NOTICED = (
    NOTICE + RECORD_LAG + 2 * WATCH_INTERVAL
)  # watched from now on, a subscription past its ttl is deleted by then


@pytest.fixture
async def sub(log: Log) -> Log:
    """A subscription with the ttl."""
    await set_ttl(log, TTL)
    return log


async def set_ttl(log: Log, ttl: timedelta | None) -> None:
    async with log.database.transaction() as connection:
        wanted = replace(log.subscription, expiration_ttl=ttl)
        await subscriptions.update_subscription(connection, subscription=wanted, now=log.start)


async def use(log: Log, now: datetime) -> int:
    async with log.database.connection() as connection:
        ids = [log.subscription.subscription_id]
        return await record_activity(connection, subscription_ids=ids, now=now)


async def watch(log: Log, now: datetime) -> None:
    async with log.database.connection() as connection:
        await watch_idle_subscriptions(connection, now=now)


async def expired(log: Log, now: datetime) -> list[str]:
    async with log.database.connection() as connection:
        return await find_expired_subscriptions(connection, now=now, limit=100)


async def delete(log: Log, now: datetime) -> timedelta | None:
    async with log.database.transaction() as connection:
        return await delete_expired_subscription(connection, name=log.subscription.name, now=now)


async def run(log: Log, start: datetime, end: datetime) -> datetime | None:
    """A broker runs from `start` to `end`.  Returns when it deletes the subscription, None if it does not."""
    now = start
    while now <= end:
        await watch(log, now)
        if await expired(log, now):
            assert await delete(log, now) is not None
            return now
        now += WATCH_INTERVAL
    return None


async def test_an_idle_subscription_is_deleted_with_its_cursor_soon_after_its_ttl(sub: Log) -> None:
    deleted_at = await run(sub, sub.start + TTL - 2 * DAY, sub.start + TTL + DAY)
    assert deleted_at is not None
    assert RECORD_LAG <= deleted_at - (sub.start + TTL) <= RECORD_LAG + 2 * WATCH_INTERVAL
    assert await sub.rows("SELECT 1 FROM subscriptions UNION ALL SELECT 1 FROM cursors") == []


async def test_one_that_is_used_stays(sub: Log) -> None:
    for days in range(3, 30, 3):
        now = sub.start + days * DAY
        assert await use(sub, now) == 1
        assert await run(sub, now + 2 * DAY, now + 3 * DAY) is None


async def test_a_use_within_the_notice_starts_everything_over(sub: Log) -> None:
    used = sub.start + TTL - WATCH_INTERVAL
    assert await run(sub, sub.start + TTL - NOTICE, used) is None
    await use(sub, used)
    deleted_at = await run(sub, used + WATCH_INTERVAL, used + TTL + DAY)
    assert deleted_at is not None
    assert deleted_at >= used + TTL


async def test_without_a_ttl_nothing_expires(sub: Log) -> None:
    await set_ttl(sub, None)
    later = sub.start + 400 * DAY
    assert await run(sub, later, later + 2 * DAY) is None


async def test_a_detached_subscription_expires_too(sub: Log) -> None:
    async with sub.database.transaction() as connection:
        await subscriptions.detach_subscription(
            connection, subscription_id=sub.subscription.subscription_id, now=sub.start + DAY
        )
    deleted_at = await run(sub, sub.start + TTL, sub.start + TTL + 2 * DAY)
    assert deleted_at is not None
    assert deleted_at >= sub.start + DAY + TTL, "detaching it was using it"


async def test_a_broker_that_was_away_gives_notice_first(sub: Log) -> None:
    back = sub.start + 100 * DAY
    assert await run(sub, back, back + NOTICE - WATCH_INTERVAL) is None
    assert await run(sub, back + NOTICE, back + NOTICED) is not None


async def test_the_shortest_ttl_has_a_notice_of_half_of_it(sub: Log) -> None:
    await set_ttl(sub, DAY)
    back = sub.start + 100 * DAY
    assert await run(sub, back, back + DAY / 2 - WATCH_INTERVAL) is None
    assert await run(sub, back + DAY / 2, back + DAY / 2 + WATCH_INTERVAL) is not None


async def test_time_without_a_broker_does_not_count_and_is_followed_by_a_grace(sub: Log) -> None:
    """The broker stops shortly before it would delete the subscription, and comes back after a week."""
    assert await run(sub, sub.start + TTL - NOTICE + RECORD_LAG, sub.start + TTL) is None
    back = sub.start + TTL + 7 * DAY
    assert await run(sub, back, back + GRACE - WATCH_INTERVAL) is None
    assert await run(sub, back + GRACE, back + GRACE + 2 * WATCH_INTERVAL) is not None


async def test_a_broker_that_runs_for_some_hours_a_day_gets_there(sub: Log) -> None:
    morning = sub.start + 10 * DAY
    deleted = [await run(sub, morning + n * DAY, morning + n * DAY + 8 * GRACE) for n in range(6)]
    assert [day is not None for day in deleted].index(True) in (2, 3)


async def test_several_processes_count_the_same_time_once(sub: Log) -> None:
    now = back = sub.start + 100 * DAY
    while now < back + NOTICE - WATCH_INTERVAL:
        await asyncio.gather(*[watch(sub, now + n * timedelta(minutes=2)) for n in range(4)])
        assert await expired(sub, now) == []
        now += WATCH_INTERVAL


async def test_a_use_is_written_once_in_ten_minutes(sub: Log) -> None:
    assert await use(sub, sub.start + RECORD_RESOLUTION) == 0
    assert await use(sub, sub.start + RECORD_RESOLUTION + timedelta(seconds=1)) == 1
    assert await use(sub, sub.start + 2 * RECORD_RESOLUTION) == 0


async def test_a_use_that_commits_while_the_deletion_waits_wins(sub: Log) -> None:
    now = sub.start + 100 * DAY
    await sub.execute(f"UPDATE subscriptions SET idle_watched = '2 days', idle_watched_at = '{now.isoformat()}'")
    assert await expired(sub, now) == [sub.subscription.name]
    async with open_transaction(sub.database) as using:
        await execute(using, f"UPDATE subscriptions SET last_active_at = '{now.isoformat()}'")
        deleting = asyncio.create_task(delete(sub, now))
        await until_waiting(sub.database)
    assert await deleting is None
    assert await sub.rows("SELECT count(*) FROM cursors") == [(1,)]


async def test_two_processes_delete_it_once(sub: Log) -> None:
    now = sub.start + 100 * DAY
    await sub.execute(f"UPDATE subscriptions SET idle_watched = '2 days', idle_watched_at = '{now.isoformat()}'")
    outcomes = await asyncio.gather(*[delete(sub, now) for _ in range(4)])
    assert [idle for idle in outcomes if idle is not None] == [100 * DAY]
