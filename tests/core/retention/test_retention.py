"""Space is given back once nobody wants the messages, and never before (A10)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.log.partitions import list_partitions, make_partitions_ahead
from broker.core.retention.retention import (
    MAX_STRAGGLERS,
    cleaning_up,
    delete_dead_letters,
    delete_unwanted,
    drop_partitions_behind,
)
from broker.observability.state_changes import StateChanges
from tests.fixtures.log import Log, add_subscription, texts

HOUR = timedelta(hours=1)


async def _tidy(log: Log, now: datetime) -> int:
    """One pass of the janitor; returns the partitions dropped."""
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=now)
        await delete_unwanted(connection, database=log.database, now=now)
        return await drop_partitions_behind(connection, database=log.database, now=now, states=StateChanges())


async def _oldest_start(log: Log) -> datetime:
    async with log.database.connection() as connection:
        return (await list_partitions(connection))[0].start


async def _resources(log: Log, change: Any, **options: Any) -> None:
    async with log.database.transaction() as connection:
        await change(connection, **options)


async def test_partitions_that_every_cursor_has_passed_are_dropped(log: Log) -> None:
    await log.publish("a")
    [delivery] = await log.pull()
    await log.acknowledge(delivery)
    assert await _tidy(log, log.start + HOUR) > 0
    assert await _oldest_start(log) > log.start
    assert await log.rows("SELECT count(*) FROM messages") == [(0,)]


async def test_unread_messages_keep_their_partition(log: Log) -> None:
    await log.publish("a")
    later = log.start + HOUR
    await _tidy(log, later)
    assert await log.pull_texts(now=later) == ["a"]


async def test_one_slow_subscription_keeps_it_for_all(log: Log) -> None:
    async with log.database.transaction() as connection:
        slow = await add_subscription(connection, log.topic, "slow", log.start)
    await log.publish("a")
    [delivery] = await log.pull()
    await log.acknowledge(delivery)
    later = log.start + HOUR
    await _tidy(log, later)
    assert await log.pull_texts(now=later, subscription_id=slow.subscription_id) == ["a"]


async def test_a_few_messages_that_are_still_out_do_not_keep_a_partition(log: Log) -> None:
    await log.publish("a", "b", "c")
    [delivery] = await log.pull()
    await log.acknowledge(delivery, [1])
    later = log.start + HOUR
    assert await _tidy(log, later) > 0
    assert await log.rows("SELECT count(*) FROM messages") == [(0,)]
    [again] = await log.pull(now=later)
    assert (texts([again]), again.attempt_number) == (["a", "c"], 2)
    await log.acknowledge(again)
    await _tidy(log, later)
    assert await log.rows("SELECT count(*) FROM straggler_messages") == [(0,)]


async def test_too_many_stragglers_keep_their_partition_and_the_log_says_so(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MAX_STRAGGLERS // 1000 + 1):
        await log.publish(*["x"] * 1000)
        await log.pull(1000)
    later = log.start + HOUR
    await _tidy(log, later)
    assert await log.rows("SELECT count(*) FROM straggler_messages") == [(0,)]
    assert len(await log.pull_texts(1000, now=later)) == 1000
    [kept] = [record.getMessage() for record in caplog.records if "keep their space" in record.getMessage()]
    assert kept.startswith("the messages published from 2")
    assert kept.endswith(
        " keep their space: 11,000 are delivered and not acknowledged; up to 10,000 would be moved aside"
    )


async def test_what_is_older_than_every_retention_is_dropped_unread(log: Log) -> None:
    await log.publish("a")
    assert await _tidy(log, log.start + timedelta(days=7, hours=1)) > 0
    assert await log.rows("SELECT count(*) FROM messages") == [(0,)]


async def test_topic_retention_keeps_what_every_subscription_has_acked(log: Log) -> None:
    await log.execute("UPDATE topics SET message_retention = interval '1 day'")
    await log.publish("a")
    [delivery] = await log.pull()
    await log.acknowledge(delivery)
    await _tidy(log, log.start + HOUR)
    assert await log.rows("SELECT count(*) FROM messages") == [(1,)]
    await _tidy(log, log.start + timedelta(days=1, hours=1))
    assert await log.rows("SELECT count(*) FROM messages") == [(0,)]


async def test_retain_acked_messages_keeps_them_for_the_subscriptions_retention(log: Log) -> None:
    await log.execute(
        "UPDATE subscriptions SET retain_acked_messages = true, message_retention = interval '2 days'"
    )
    await log.publish("a")
    [delivery] = await log.pull()
    await log.acknowledge(delivery)
    await _tidy(log, log.start + timedelta(days=1))
    assert await log.rows("SELECT count(*) FROM messages") == [(1,)]
    await _tidy(log, log.start + timedelta(days=2, hours=1))
    assert await log.rows("SELECT count(*) FROM messages") == [(0,)]


async def test_a_deleted_subscription_leaves_nothing(log: Log) -> None:
    await log.publish("a")
    await log.pull()
    await _resources(log, subscriptions.delete_subscription, subscription_id=log.subscription.subscription_id)
    assert await _tidy(log, log.start + HOUR) > 0
    assert await log.attempts() == []


async def test_a_deleted_topic_keeps_its_shard_while_a_subscription_has_its_backlog(log: Log) -> None:
    await log.publish("a")
    await _resources(log, topics.delete_topic, topic=log.topic)
    later = log.start + HOUR
    await _tidy(log, later)
    assert await log.pull_texts(now=later) == ["a"]
    await _resources(log, subscriptions.delete_subscription, subscription_id=log.subscription.subscription_id)
    await _tidy(log, later)
    assert await log.rows("SELECT count(*) FROM shards") == [(0,)]


async def test_many_dead_attempts_are_deleted_in_bounded_steps(log: Log) -> None:
    await log.execute(
        f"""
        INSERT INTO delivery_attempts
        SELECT {log.shard_id}, 4711, n, 0, 'delivering', 1, now(), now(), '{{[1,2)}}', B'1', NULL, now(), now()
        FROM generate_series(1, 2500) AS n
        """
    )
    async with log.database.connection() as connection:
        assert await delete_unwanted(connection, database=log.database, now=log.start) == 2500
    assert await log.attempts() == []


async def test_what_is_known_of_dead_letters_goes_with_them(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are still out when their partition goes are known until they are acked."""
    monkeypatch.setattr("broker.core.retention.retention.BATCH", 2)
    await log.publish("a")
    await log.publish(*"bcdef")
    await log.execute(
        "INSERT INTO dead_letters SELECT shard_id, publish_time, seq, 7, seq, publish_time, 't', 8, 's', 5, 'nack'"
        " FROM messages"
    )

    async def delete(now: datetime) -> int:
        async with log.database.connection() as connection:
            return await delete_dead_letters(connection, now=now)

    later = log.start + HOUR
    assert await delete(later) == 0, "they are in the log"
    [out, acked] = [*await log.pull(1), *await log.pull()]
    await log.acknowledge(acked)
    assert await _tidy(log, later) > 0
    assert await delete(later) == 5
    assert await log.rows("SELECT seq FROM dead_letters") == [(1,)]
    await log.acknowledge(out)
    await _tidy(log, later)
    assert await delete(later) == 1


async def test_one_process_cleans_up_at_a_time(log: Log) -> None:
    async with cleaning_up(log.database) as ours:
        assert ours
        async with cleaning_up(log.database) as theirs:
            assert not theirs
    async with cleaning_up(log.database) as theirs:
        assert theirs
