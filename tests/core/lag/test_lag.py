"""How far behind subscriptions are, and what holds each (F3)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from broker.core.backlog.seeking import cursors
from broker.core.backlog.seeking.cursors import ShardSeek
from broker.core.catalog import push_state_rows as push_states
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.filtering.jsonpath import to_jsonpath
from broker.core.filtering.parser import parse_filter
from broker.core.lag.lag import (
    Delivering,
    Lag,
    LagState,
    ShardLag,
    Skip,
    lag_of,
    skip_warning,
    unmatched_warning,
)
from broker.core.lag.lag_rows import read_lag
from broker.core.lag.lags import read_lags
from broker.core.log.messages import append_messages, encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.db.driver.database import Database
from broker.db.driver.replica_reads import ReplicaReads
from broker.model.journal import Author
from broker.model.message import NewMessage
from broker.model.message_id import message_id
from broker.model.push_config import PushConfig
from broker.model.push_state import FailingMessage, FailureRun, PushState
from broker.model.subscription import Subscription
from broker.model.timestamps import format_timestamp
from tests.fixtures.log import RETENTION, SECOND, Log

MINUTE = timedelta(minutes=1)


class _Clock(DatabaseClock):
    """At the time that the test says."""

    def __init__(self, database: Database, moment: datetime) -> None:
        super().__init__(database)
        self.moment = moment

    def now(self) -> datetime:
        return self.moment


class Looked:
    """The lags of all subscriptions of the log's project."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.clock = _Clock(log.database, log.start)

    async def all(self, later: timedelta = timedelta(0), *, used: bool = True) -> list[Lag]:
        """So much later; `used`: somebody pulls all the time."""
        self.clock.moment = self.log.start + later
        if used:
            await self.log.execute(f"UPDATE subscriptions SET last_active_at = '{self.clock.moment}'")
        async with self.log.database.transaction() as connection:
            some = await subscriptions.list_all_subscriptions(connection, after=0, limit=100)
        database = self.log.database
        return await read_lags(database, ReplicaReads(database), self.clock, some)

    async def only(self, later: timedelta = timedelta(0), **options: bool) -> Lag:
        [lag] = await self.all(later, **options)
        return lag

    async def add(self, name: str, **fields: object) -> Subscription:
        wanted = Subscription(
            name=f"projects/p/subscriptions/{name}",
            topic=self.log.topic.name,
            **fields,  # type: ignore[arg-type]
        )
        async with self.log.database.transaction() as connection:
            found = await subscriptions.insert_subscription(
                connection, subscription=wanted, topic_id=self.log.topic.topic_id, now=self.log.start
            )
        assert found is not None
        return found


@pytest.fixture
def checked(log: Log) -> Looked:
    return Looked(log)


async def test_a_subscription_without_messages_is_caught_up(checked: Looked) -> None:
    lag = await checked.only(10 * MINUTE, used=False)
    assert (lag.state, lag.oldest, lag.undelivered, lag.undelivered_bytes) == (LagState.CAUGHT_UP, None, 0, 0)


async def test_messages_that_nobody_pulls_are_counted_with_their_age(checked: Looked, log: Log) -> None:
    await log.publish("one", "two")
    await log.publish("four", now=log.start + SECOND)
    young = await checked.only(5 * SECOND)
    assert (young.state, young.verdict) == (LagState.RECENT, "All messages are less than 10s old.")
    lag = await checked.only(10 * MINUTE, used=False)
    assert (lag.state, lag.undelivered, lag.outstanding, lag.oldest) == (
        LagState.NO_CONSUMERS,
        3,
        0,
        log.start,
    )
    assert lag.undelivered_bytes == pytest.approx(10, abs=1)
    assert not lag.is_estimated
    # A use is recorded up to a minute late, and no other one within ten minutes of it.
    used = log.start + 5 * SECOND
    assert lag.verdict == (
        f"No client is pulling or streaming; the last one did after {format_timestamp(used - MINUTE)}."
    )
    assert (await checked.only(20 * MINUTE, used=False)).verdict == (
        f"No client is pulling or streaming; none has since {format_timestamp(used + 10 * MINUTE)}."
    )


async def test_what_is_out_counts_until_it_is_acked(checked: Looked, log: Log) -> None:
    await log.publish("a", "b", "c")
    await log.publish("d", now=log.start + SECOND)
    [delivery] = await log.pull(3)
    await log.acknowledge(delivery, [0, 1])
    lag = await checked.only(MINUTE)
    assert (lag.state, lag.undelivered, lag.outstanding) == (LagState.NO_CONSUMERS, 2, 0)
    soon = await checked.only(5 * SECOND)
    assert (soon.state, soon.undelivered, soon.outstanding) == (LagState.RECENT, 2, 1)
    assert lag.verdict == (
        "No client is pulling or streaming: 2 messages are not acknowledged and none of them is outstanding; "
        "the oldest is 1m old."
    )
    assert lag.oldest == log.start
    await log.acknowledge(delivery, [2])
    lag = await checked.only(MINUTE)
    assert (lag.undelivered, lag.outstanding, lag.oldest) == (1, 0, log.start + SECOND)


async def test_messages_that_all_failed_are_told_as_such(checked: Looked, log: Log) -> None:
    await log.publish("a", "b")
    [delivery] = await log.pull()
    await log.nack(delivery, now=log.start + 10 * MINUTE)
    lag = await checked.only(MINUTE)
    assert (lag.state, lag.verdict) == (
        LagState.RETRYING,
        "All 2 messages have failed, up to once, and are redelivered later.",
    )


async def test_messages_past_the_retention_are_no_backlog(checked: Looked, log: Log) -> None:
    await log.publish("old")
    await log.publish("new", now=log.start + MINUTE)
    lag = await checked.only(RETENTION + SECOND)
    assert (lag.undelivered, lag.oldest) == (1, log.start + MINUTE)


async def test_a_stuck_key_is_told_with_the_message_that_holds_it(checked: Looked, log: Log) -> None:
    await log.execute("UPDATE subscriptions SET enable_message_ordering = true")
    for text in ("k1", "k2", "k3"):
        await log.publish(text, key="k")
    await log.publish("other", key="l")
    [first] = await log.pull(1, ordered=True)
    await log.pull(ordered=True)
    lag = await checked.only(SECOND)
    assert (lag.state, lag.undelivered, lag.outstanding, lag.held) == (LagState.RECENT, 4, 2, 2)
    await log.nack(first, now=log.start + SECOND)
    lag = await checked.only(MINUTE)
    assert lag.state is LagState.BLOCKED_KEY
    assert lag.holder is not None
    assert (lag.holder.ordering_key, lag.holder.attempt_number) == ("k", 1)
    assert lag.holder.message_id == message_id(log.shard_id, 1)
    assert lag.holder.delivered_at == log.start
    assert f"message {message_id(log.shard_id, 1)} failed" in lag.verdict


async def test_what_a_filter_leaves_out_is_no_backlog(checked: Looked, log: Log) -> None:
    filter_path = to_jsonpath(parse_filter('attributes.env = "prod"'))
    await checked.add("filtered", filter='attributes.env = "prod"', filter_path=filter_path)
    await log.publish("no")
    await log.execute(
        "INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, attributes, data)"
        f" VALUES ({log.shard_id}, '{log.start + SECOND}', 3, 2, 4,"
        """ ARRAY['{"env": "prod"}', '{"env": "test"}']::jsonb[], ARRAY['a', 'b']::bytea[])"""
    )
    await log.execute("UPDATE shards SET head = 3")
    plain, filtered = await checked.all(MINUTE)
    assert (plain.undelivered, filtered.undelivered) == (3, 1)
    assert filtered.oldest == log.start + SECOND
    assert not filtered.is_estimated


async def test_pushes_say_what_stops_them(checked: Looked, log: Log) -> None:
    pushed = await checked.add("pushed", push_config=PushConfig(endpoint="https://example.com/"))
    await log.publish("a")
    state = PushState(subscription_id=pushed.subscription_id, breaker="open", changed_at=log.start)
    run = FailureRun(since=log.start, requests=15, status=400, reason="Bad Request")

    async def checked_at(**fields: object) -> Lag:
        async with log.database.transaction() as connection:
            new = {name: getattr(state, name) for name in PushState.__dataclass_fields__} | fields
            await push_states.write_push_states(connection, states=[PushState(**new)])
        return next(lag for lag in await checked.all(20 * SECOND) if lag.subscription.is_push)

    async def reported(**fields: object) -> LagState:
        return (await checked_at(**fields)).state

    assert await reported() is LagState.ENDPOINT_FAILING
    retry_at = log.start + 30 * SECOND
    failing = await checked_at(breaker="closed", failures=run, retry_at=retry_at)
    assert (failing.state, failing.endpoint and failing.endpoint.failures) == (LagState.ENDPOINT_FAILING, run)
    assert failing.verdict == (
        f"The endpoint fails: 15 requests have failed without a success since {format_timestamp(log.start)}; "
        f"the last one: status 400 (Bad Request); the next attempt is at {format_timestamp(retry_at)}."
    )
    single = await checked_at(breaker="closed", failures=run, consecutive_failures=1)
    assert f"since {format_timestamp(log.start)}, all of one message, which it may refuse alone; the last one" in (
        single.verdict
    )
    past = await checked_at(breaker="half_open", failures=run, retry_at=log.start + 20 * SECOND)
    assert past.verdict.endswith("(Bad Request); its circuit breaker is half open.")
    assert past.endpoint is not None
    assert past.endpoint.retry_at is None
    young = replace(run, since=log.start + 11 * SECOND)
    assert await reported(breaker="closed", failures=young) is LagState.SLOW_ENDPOINT
    assert await reported(breaker="closed", failures=replace(young, is_reported=True)) is LagState.ENDPOINT_FAILING
    assert await reported(breaker="closed", waits_since=log.start - SECOND) is LagState.WAITING_FOR_SLOTS
    assert await reported(breaker="closed") is LagState.SLOW_ENDPOINT
    assert await reported(breaker="open", paused_reason="It answered 410.") is LagState.PAUSED


async def test_clients_that_hold_nothing_are_not_said_to_be_slow() -> None:
    subscription = Subscription(name="projects/p/subscriptions/s", topic="projects/p/topics/t")
    start = datetime(2026, 1, 1, tzinfo=UTC)
    shard = ShardLag(subscription_id=1, last_active_at=start, unclaimed=40, oldest_unclaimed=start)
    lag = lag_of(subscription, [shard], Delivering(readers=1), start + MINUTE)
    assert (lag.state, lag.verdict) == (
        LagState.SLOW_CONSUMERS,
        "The 1 client that pulls or streams has not taken them: 40 messages are not acknowledged and none of them "
        "is outstanding; the oldest is 1m old.",
    )
    busy = replace(shard, unclaimed=39, claimed=1, outstanding=1)
    assert lag_of(subscription, [busy], Delivering(readers=2), start + MINUTE).verdict == (
        "The 2 clients that pull or stream cannot keep up: 40 messages are not acknowledged, 1 of them "
        "outstanding; the oldest is 1m old."
    )


async def test_messages_that_a_working_endpoint_refuses_are_named_and_the_endpoint_is_not_called_slow(
    checked: Looked, log: Log
) -> None:
    await log.execute(
        'UPDATE subscriptions SET settings = \'{"pushConfig": {"pushEndpoint": "https://example.com/"}}\''
    )
    await log.publish("poison")
    [delivery] = await log.pull(1)
    await log.nack(delivery, now=log.start + 10 * MINUTE)
    await log.publish("fresh", now=log.start + MINUTE)
    poison = message_id(log.shard_id, 1)
    message = FailingMessage(
        message_id=poison, since=log.start, failures=12, status=422, reason="Unprocessable Entity"
    )
    state = PushState(
        subscription_id=log.subscription.subscription_id, changed_at=log.start, failing_messages=(message,)
    )
    async with log.database.transaction() as connection:
        await push_states.write_push_states(connection, states=[state])
    lag = await checked.only(MINUTE + SECOND)
    assert (lag.state, lag.verdict) == (
        LagState.RETRYING,
        "1 message has failed once, and is redelivered later; others succeed. "
        f"Message {poison} since {format_timestamp(log.start)}: 12 failed attempts while other messages are "
        "delivered; the last one: status 422 (Unprocessable Entity).",
    )
    lag = await checked.only(2 * MINUTE)
    assert lag.state is LagState.SLOW_ENDPOINT  # messages that were never handed out wait, too


async def test_a_message_that_is_pushed_again_just_now_does_not_make_the_endpoint_slow(
    checked: Looked, log: Log
) -> None:
    await log.execute(
        'UPDATE subscriptions SET settings = \'{"pushConfig": {"pushEndpoint": "https://example.com/"}}\''
    )
    await log.publish("poison")
    [delivery] = await log.pull(1)
    assert (await checked.only(MINUTE)).state is LagState.SLOW_ENDPOINT
    await log.nack(delivery, now=log.start + MINUTE)
    await log.pull(1, now=log.start + 2 * MINUTE)
    lag = await checked.only(2 * MINUTE)
    assert (lag.state, lag.verdict) == (
        LagState.RETRYING,
        "Messages that failed before are being redelivered, up to attempt 2; others succeed.",
    )


async def test_what_a_seek_or_a_purge_has_skipped_is_not_called_acknowledged(checked: Looked, log: Log) -> None:
    await log.publish("a", "b", "c")
    await log.acknowledge((await log.pull(1))[0])
    await seek(log, now=log.start + MINUTE, to=log.start + MINUTE, by="user:anna")
    lag = await checked.only(2 * MINUTE)
    when = format_timestamp(log.start + MINUTE)
    assert (lag.state, lag.undelivered) == (LagState.CAUGHT_UP, 0)
    assert lag.skip == Skip(messages=2, at=log.start + MINUTE, by="user:anna", is_purge=False)
    assert lag.verdict == (f"Every message is acknowledged, except 2 that a seek at {when} by user:anna skipped.")
    assert skip_warning(lag.skip, log.start + 2 * MINUTE) == (
        f"2 messages are not delivered: a seek at {when} by user:anna skipped them. "
        "If that was a mistake, undo it or seek back."
    )
    assert skip_warning(lag.skip, log.start + 61 * MINUTE) == ""
    await seek(log, now=log.start + 3 * MINUTE, to=log.start)  # the two are retained
    await seek(log, now=log.start + 4 * MINUTE, to=log.start + 4 * MINUTE, is_purge=True)
    purged = await checked.only(5 * MINUTE)
    when = format_timestamp(log.start + 4 * MINUTE)
    assert purged.verdict == f"Every message is acknowledged, except 3 that a purge at {when} dropped."
    await log.publish("d", now=log.start + 6 * MINUTE)
    assert (await checked.only(6 * MINUTE)).state is LagState.RECENT


async def test_a_seek_back_ends_what_was_skipped(checked: Looked, log: Log) -> None:
    await log.publish("a", "b")
    await seek(log, now=log.start + MINUTE, to=log.start + MINUTE)
    await seek(log, now=log.start + 2 * MINUTE, to=log.start)
    for delivery in await log.pull(now=log.start + 2 * MINUTE):
        await log.acknowledge(delivery)
    lag = await checked.only(3 * MINUTE)
    assert (lag.skip, lag.verdict) == (None, "Every message is acknowledged.")


async def test_a_subscription_that_nothing_was_published_for_says_so(checked: Looked, log: Log) -> None:
    nothing = f"Nothing has been published to its topic since it was created at {format_timestamp(log.start)}."
    assert (await checked.only(MINUTE)).verdict == nothing
    await log.publish("before")
    async with log.database.transaction() as connection:
        wanted = Subscription(name="projects/p/subscriptions/later", topic=log.topic.name)
        await subscriptions.insert_subscription(
            connection, subscription=wanted, topic_id=log.topic.topic_id, now=log.start + MINUTE
        )
    later = (await checked.all(2 * MINUTE))[-1]
    assert later.verdict == nothing.replace(format_timestamp(log.start), format_timestamp(log.start + MINUTE))


async def test_a_filter_that_matches_nothing_is_told_from_one_that_has_matched(checked: Looked, log: Log) -> None:
    path = to_jsonpath(parse_filter('attributes.region = "EU"'))
    filtered = await checked.add("filtered", filter='attributes.region = "EU"', filter_path=path)
    await log.publish(*map(str, range(19)))
    claim = {"subscription_id": filtered.subscription_id, "filter_path": path}
    await log.claim(**claim)  # type: ignore[arg-type]
    few = (await checked.all(MINUTE))[-1]
    assert (few.state, few.unmatched, few.verdict) == (
        LagState.CAUGHT_UP,
        0,
        "Every message that its filter matches is acknowledged.",
    )
    await log.publish(*map(str, range(30)), now=log.start + SECOND)
    await log.claim(**claim, now=log.start + SECOND)  # type: ignore[arg-type]
    none = (await checked.all(MINUTE))[-1]
    assert (none.state, none.unmatched) == (LagState.CAUGHT_UP, 49)
    assert none.verdict == (
        "Every message that its filter matches is acknowledged. It matches none of the newest 49 messages of its "
        "topic."
    )
    assert "none of the newest 49 messages" in unmatched_warning(none.unmatched)
    await log.execute(
        "INSERT INTO delivery_records (shard_id, subscription_id, bucket, recorded_at, principal, client, answer,"
        f" entries) VALUES ({log.shard_id}, {filtered.subscription_id}, 0, '{log.start}', '', '', '', '')"
    )
    assert (await checked.all(MINUTE))[-1].unmatched == 0  # something was acknowledged today


async def test_the_newest_messages_are_compared_only_if_nothing_else_says_that_the_filter_matches(
    checked: Looked, log: Log
) -> None:
    async def read() -> tuple[int, bool]:
        async with log.database.hot() as connection:
            [shard] = await read_lag(connection, subscriptions=[filtered], now=log.start + MINUTE)
        return shard.compared, shard.matched

    text = 'attributes.region = "EU"'
    path = to_jsonpath(parse_filter(text))
    filtered = await checked.add("filtered", filter=text, filter_path=path)
    await log.publish(*map(str, range(30)))
    assert await read() == (30, False)
    matching = encode_messages([NewMessage(data=b"matches", attributes={"region": "EU"})])
    async with log.database.hot() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[matching], now=log.start)
    assert await read() == (0, True)  # it is waiting
    await log.claim(subscription_id=filtered.subscription_id, filter_path=path)
    assert await read() == (0, True)  # it is outstanding
    await log.execute("DELETE FROM delivery_attempts")
    assert await read() == (31, True)  # it is one of the newest


async def seek(log: Log, *, now: datetime, to: datetime, by: str = "", is_purge: bool = False) -> None:
    async with log.database.transaction() as connection:
        found = await cursors.seek_to_time(
            connection,
            ShardSeek(
                shard_id=log.shard_id,
                subscription_id=log.subscription.subscription_id,
                ordered=False,
                now=now,
                first_attempt_id=log.attempt_ids.take_parts(1, now=now)[0],
                author=Author(by),
                is_purge=is_purge,
            ),
            time=to,
            replay_since=log.start,
        )
        assert found is not None


async def test_messages_of_a_key_that_a_snapshot_held_are_not_caught_up(checked: Looked, log: Log) -> None:
    """Messages that wait for their key make a backlog whatever is known of the first one."""
    shard = ShardLag(subscription_id=1, last_active_at=log.start, held=3, oldest_held=log.start)
    lag = lag_of(log.subscription, [shard], Delivering(readers=1), log.start + MINUTE)
    assert (lag.state is LagState.CAUGHT_UP, lag.undelivered, lag.oldest) == (False, 3, log.start)
