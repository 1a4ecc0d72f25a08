"""Seek moves a subscription back and forth; snapshots hold what was unacked (A9)."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking import snapshot_rows as snapshots
from broker.core.backlog.seeking.cursors import ShardSeek
from broker.core.backlog.seeking.replay import ShardReplay, replay
from broker.core.log.messages import append_messages, encode_messages
from broker.core.retention.retention import delete_unwanted, drop_partitions_behind
from broker.model.message import NewMessage
from tests.fixtures.log import SECOND, Log, add_subscription

HOUR = timedelta(hours=1)


async def seek_to_time(
    log: Log, time: datetime, *, now: datetime | None = None, replay_since: datetime | None, **options: Any
) -> ShardReplay:
    async with log.database.transaction() as connection:
        there = place(log, now, **options)
        found = await cursors.seek_to_time(connection, there, time=time, replay_since=replay_since)
    assert found is not None
    return found


def place(
    log: Log,
    now: datetime | None = None,
    subscription_id: int | None = None,
    *,
    ordered: bool = False,
    **options: Any,
) -> ShardSeek:
    now = now or log.start
    return ShardSeek(
        shard_id=log.shard_id,
        subscription_id=subscription_id or log.subscription.subscription_id,
        ordered=ordered,
        now=now,
        first_attempt_id=log.attempt_ids.take_parts(1, now=now)[0],
        **options,
    )


async def create_snapshot(log: Log, name: str = "projects/p/snapshots/snap") -> tuple[int, datetime | None]:
    async with log.database.transaction() as connection:
        created = await snapshots.insert_snapshot(
            connection,
            name=name,
            labels={},
            subscription=log.subscription,
            retained_since=log.start - timedelta(days=7),
            now=log.start,
        )
        assert created is not None
        snapshot, oldest = created
    await log.execute("UPDATE snapshots SET expire_time = now() + interval '7 days'")
    return snapshot.snapshot_id, oldest


async def seek_to_snapshot(
    log: Log, snapshot_id: int, subscription_id: int | None = None, **options: Any
) -> ShardReplay:
    async with log.database.transaction() as connection:
        there = place(log, subscription_id=subscription_id, **options)
        found = await cursors.seek_to_snapshot(connection, there, snapshot_id=snapshot_id)
    assert found is not None
    return found


async def _three_at_a_second_each(log: Log) -> None:
    for number, text in enumerate("abc"):
        await log.publish(text, now=log.start + number * SECOND)


async def test_seeking_past_the_end_acks_everything_that_there_is(log: Log) -> None:
    await _three_at_a_second_each(log)
    await log.pull(1)
    await seek_to_time(log, log.start + HOUR, replay_since=None)
    assert await log.pull_texts(now=log.start + HOUR) == []
    assert await log.attempts() == []
    await log.publish("d", now=log.start + 2 * SECOND)
    assert await log.pull_texts() == ["d"], "it was published after the seek"


async def test_messages_that_come_after_a_purge_arrive(log: Log) -> None:
    await _three_at_a_second_each(log)
    await seek_to_time(log, log.start + 5 * SECOND, replay_since=None)
    await log.publish("d", now=log.start + 6 * SECOND)
    assert await log.pull_texts() == ["d"]


async def test_seeking_forward_acks_what_is_before_and_keeps_what_is_after(log: Log) -> None:
    await _three_at_a_second_each(log)
    await seek_to_time(log, log.start + SECOND, replay_since=None)
    assert await log.pull_texts() == ["b", "c"]


async def test_acked_messages_come_back_as_far_as_they_are_retained(log: Log) -> None:
    await _three_at_a_second_each(log)
    [delivery] = await log.pull()
    await log.acknowledge(delivery)
    await seek_to_time(log, log.start - HOUR, replay_since=log.start + SECOND)
    [again] = await log.pull()
    assert [m.data for m in again.messages] == [b"b", b"c"]
    assert again.attempt_number == 1, "attempts are counted anew"


async def test_acked_messages_that_are_not_retained_stay_acked(log: Log) -> None:
    await _three_at_a_second_each(log)
    [delivery] = await log.pull()
    await log.acknowledge(delivery, [1])
    await seek_to_time(log, log.start - HOUR, replay_since=None)
    assert await log.pull_texts() == ["a", "c"]


async def test_of_what_is_out_only_what_is_older_than_the_time_is_acked(log: Log) -> None:
    await _three_at_a_second_each(log)
    await log.pull()
    await seek_to_time(log, log.start + SECOND, replay_since=None)
    assert await log.pull_texts() == ["b", "c"]


async def test_ack_ids_from_before_a_seek_name_nothing_any_more(log: Log) -> None:
    await _three_at_a_second_each(log)
    [delivery] = await log.pull()
    await seek_to_time(log, log.start - HOUR, replay_since=None)
    assert await log.acknowledge(delivery) == {0, 1, 2}
    assert await log.pull_texts() == ["a", "b", "c"]


async def test_unacked_messages_older_than_what_is_retained_stay_unacked(log: Log) -> None:
    """retainAckedMessages reaches back to b; a is still out, c is acked and comes back."""
    await _three_at_a_second_each(log)
    [delivery] = await log.pull()
    await log.acknowledge(delivery, [1, 2])
    await seek_to_time(log, log.start - HOUR, replay_since=log.start + SECOND)
    assert sorted(await log.pull_texts()) == ["a", "b", "c"]
    assert await log.pull_texts() == []


async def test_a_snapshot_holds_what_is_unacked_and_what_comes_later(log: Log) -> None:
    await log.publish("a", "b", "c", "d")
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [1])
    snapshot_id, oldest = await create_snapshot(log)
    assert oldest == log.start
    await log.acknowledge(delivery)
    [rest] = await log.pull()
    await log.acknowledge(rest)
    await log.publish("e")
    for _ in range(2):  # a snapshot can be used again
        await seek_to_snapshot(log, snapshot_id)
        assert sorted(await log.pull_texts()) == ["a", "c", "d", "e"]
    assert await log.pull_texts() == []


async def test_a_new_subscription_can_start_from_a_snapshot(log: Log) -> None:
    """Google's recipe: snapshot, new subscription, seek."""
    await log.publish("a", "b")
    [delivery] = await log.pull(1)
    snapshot_id, _ = await create_snapshot(log)
    async with log.database.transaction() as connection:
        other = (await add_subscription(connection, log.topic, "other", log.start)).subscription_id
    assert await log.pull_texts(subscription_id=other) == []
    await seek_to_snapshot(log, snapshot_id, subscription_id=other)
    assert sorted(await log.pull_texts(subscription_id=other)) == ["a", "b"]
    assert await log.acknowledge(delivery) == set(), "the source subscription is left alone"


async def test_a_snapshot_keeps_its_messages_until_it_expires(log: Log) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull(1)
    snapshot_id, _ = await create_snapshot(log)
    await log.acknowledge(delivery)
    [rest] = await log.pull()
    await log.acknowledge(rest)
    async with log.database.connection() as connection:
        await drop_partitions_behind(connection, database=log.database, now=log.start + HOUR)
        await seek_to_snapshot(log, snapshot_id)
        assert sorted(await log.pull_texts()) == ["a", "b"]
        later = log.start + timedelta(days=7, hours=2)
        await snapshots.delete_expired_snapshots(connection, now=later)
        await delete_unwanted(connection, database=log.database, now=later)
        await drop_partitions_behind(connection, database=log.database, now=later)
    for table in ("snapshots", "snapshot_positions", "snapshot_outstanding", "messages"):
        assert await log.rows(f"SELECT count(*) FROM {table}") == [(0,)], table


async def test_an_empty_backlog_has_no_oldest_message(log: Log) -> None:
    assert (await create_snapshot(log))[1] is None


# --- what a seek tells ------------------------------------------------------------------------------------


async def test_a_seek_counts_what_comes_again(log: Log) -> None:
    """Acked or out; what was never handed out comes, but not again."""
    await _three_at_a_second_each(log)
    [delivery] = await log.pull(2)
    await log.acknowledge(delivery, [0])
    back = await seek_to_time(log, log.start - HOUR, replay_since=log.start - HOUR)
    assert back == ShardReplay(2, since=log.start - HOUR)
    assert await log.pull_texts() == ["a", "b", "c"]
    assert await seek_to_time(log, log.start + HOUR, replay_since=log.start - HOUR) == ShardReplay(0)


async def test_a_seek_counts_only_what_is_retained(log: Log) -> None:
    await _three_at_a_second_each(log)
    [delivery] = await log.pull()
    await log.acknowledge(delivery, [1, 2])
    found = await seek_to_time(log, log.start - HOUR, replay_since=log.start + 2 * SECOND)
    assert found == ShardReplay(2, since=log.start - HOUR)
    assert sorted(await log.pull_texts()) == ["a", "c"]
    found = await seek_to_time(log, log.start - HOUR, replay_since=None, retained_since=log.start + HOUR)
    assert found.messages == 0, "all that is out is older than the retention, and so not delivered"


async def test_a_seek_to_a_snapshot_counts_what_it_holds_as_far_as_that_is_retained(log: Log) -> None:
    await _three_at_a_second_each(log)
    await log.pull(1)
    snapshot_id, _ = await create_snapshot(log)
    await log.acknowledge((await log.pull())[0])
    assert await seek_to_snapshot(log, snapshot_id) == ShardReplay(3, since=log.start)
    await log.pull()
    found = await seek_to_snapshot(log, snapshot_id, retained_since=log.start + 2 * SECOND)
    assert found.messages == 1


async def test_a_seek_counts_what_the_filter_matches_and_says_when_it_stopped_counting(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = [NewMessage(data=b"x", attributes={"n": "odd" if n % 2 else "even"}) for n in range(10)]
    async with log.session() as session:
        requests = [encode_messages(messages)]
        await append_messages(session, shard_id=log.shard_id, requests=requests, now=log.start)
    odd = '$.n == "odd"'
    await log.acknowledge((await log.pull(filter_path=odd))[0])
    found = await seek_to_time(log, log.start, replay_since=log.start, filter_path=odd)
    assert (found.messages, found.at_least) == (5, False)
    await log.acknowledge((await log.pull(filter_path=odd))[0])
    monkeypatch.setattr(cursors, "MAX_COUNTED", 4)
    found = await seek_to_time(log, log.start, replay_since=log.start, filter_path=odd)
    assert (found.messages, found.at_least) == (2, True)


def test_what_is_not_retained_is_told_only_to_those_who_asked_for_it(now: datetime) -> None:
    def reported(retained_since: datetime | None, *since: datetime | None) -> str:
        return replay(
            [ShardReplay(0, since=s) for s in since], retained_since=retained_since, why="why"
        ).not_retained

    assert reported(now, now - SECOND, None) == reported(None, now) == "why"
    assert reported(now, now, now + SECOND) == reported(now, None) == reported(None, None) == ""


async def test_positions_tell_the_oldest_that_is_out_and_that_was_never(log: Log) -> None:
    await _three_at_a_second_each(log)
    where = {"subscription_id": log.subscription.subscription_id}

    async def oldest(**options: Any) -> tuple[datetime | None, datetime | None]:
        async with log.database.connection() as connection:
            [position] = await cursors.read_positions(connection, **where, **options)
        return position.oldest_outstanding, position.oldest_unclaimed

    assert await oldest() == (None, log.start)
    assert await oldest(retained_since=log.start + SECOND) == (None, log.start + SECOND)
    assert await oldest(filter_path='$.a == "b"') == (None, None)
    [delivery] = await log.pull(2)
    assert await oldest() == (log.start, log.start + 2 * SECOND)
    await log.acknowledge(delivery, [0])
    assert await oldest() == (log.start + SECOND, log.start + 2 * SECOND)
    await log.pull()
    await log.acknowledge(delivery)
    assert await oldest() == (log.start + 2 * SECOND, None)


async def test_positions_tell_heads_and_gaps(log: Log) -> None:
    await log.publish("a", "b", "c", "d", "e")
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [0])
    async with log.database.connection() as connection:
        [position] = await cursors.read_positions(connection, subscription_id=log.subscription.subscription_id)
    assert (position.head, position.next_seq, position.outstanding, position.undelivered) == (5, 4, 2, 4)
