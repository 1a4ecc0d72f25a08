"""The filters that a subscription had before: for how long they are kept, and what new shards begin with."""

from dataclasses import replace
from datetime import timedelta

from broker.core.catalog import topic_logs
from broker.core.claiming.transaction.request import Gone
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.features.dead_letters.editing.private_shard_rows import find_private_shard
from broker.features.events.rows import tell_event, write_event_topic
from broker.features.filters.change_rows import forget_filters
from broker.features.filters.change_service import FilterChangeService
from broker.model.filter_changes import EarlierFilter
from broker.model.names import project_of
from tests.fixtures.changed_filters import PROD, TEST, claim, known, publish, set_filter
from tests.fixtures.core import make_core
from tests.fixtures.log import SECOND, Log, texts

HOUR = timedelta(hours=1)


async def forget(log: Log) -> None:
    async with log.database.connection() as connection:
        await forget_filters(connection, now=log.start)


async def test_filters_that_decide_about_no_message_are_forgotten(log: Log) -> None:
    await publish(log, "first", log.start)
    first = await set_filter(log, PROD, log.start + SECOND)
    await set_filter(log, "attributes:x", log.start + 2 * SECOND)
    await set_filter(log, TEST, log.start + 3 * SECOND)
    await forget(log)
    kept = await known(log)
    assert kept.earlier_filters == (EarlierFilter("", first),)
    assert kept.newest_filter is not None
    await publish(log, "last", log.start + 4 * SECOND)
    got = await claim(log, kept)
    assert texts(got.deliveries[0]) == ["prod first", "test first", "test last"]


async def test_once_the_log_has_no_earlier_message_claims_cost_what_they_did_before_the_change(
    log: Log,
) -> None:
    await publish(log, "first", log.start)
    stale = await known(log)
    await set_filter(log, PROD, log.start + SECOND)
    heard = await known(log)
    await log.execute("DELETE FROM message_batches")
    await forget(log)
    kept = await known(log)
    assert (kept.earlier_filters, kept.newest_filter, kept.body_path) == ((), None, None)
    await publish(log, "last", log.start + 2 * SECOND)
    assert (await claim(log, stale)).rest == Gone()
    assert texts((await claim(log, heard)).deliveries[0]) == ["prod last"]
    await publish(log, "very last", log.start + 3 * SECOND)
    assert texts((await claim(log, kept)).deliveries[0]) == ["prod very last"]


async def test_a_filter_is_kept_as_long_as_a_dead_letter_may_come_back_to_it(log: Log) -> None:
    await set_filter(log, PROD, log.start + SECOND)
    await log.execute(
        "INSERT INTO dead_letters (shard_id, publish_time, seq, source_shard_id, source_seq, source_publish_time,"
        " source_topic, subscription_id, subscription, delivery_attempts, reason)"
        f" SELECT 1, now(), 1, {log.shard_id}, 1, '{log.start}', 't', {log.subscription.subscription_id}, 's', 5,"
        " 'nack'"
    )
    await forget(log)
    assert len((await known(log)).earlier_filters) == 1
    await log.execute("DELETE FROM dead_letters")
    await forget(log)
    assert (await known(log)).earlier_filters == ()


async def test_a_shard_that_is_made_later_begins_behind_the_change_whatever_the_clock_says(log: Log) -> None:
    since = await set_filter(log, PROD, log.start + HOUR)
    async with log.database.transaction() as connection:
        await topic_logs.add_shards(connection, topic=log.topic, count=1, now=log.start)
    async with log.database.transaction() as connection:
        await find_private_shard(connection, subscription=await known(log), now=log.start)
    assert await log.rows("SELECT DISTINCT last_publish_time FROM shards") == [(since,)]


async def test_the_event_about_a_change_is_told_through_the_core_or_to_nobody(log: Log, tasks: Tasks) -> None:
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    name, project = log.subscription.name, project_of(log.subscription.name)
    async with log.database.transaction() as connection:
        await write_event_topic(connection, project=project, topic=f"{project}/topics/events", now=clock.now())
    without_events = make_core(log.database, clock, tasks)
    await FilterChangeService(without_events).set_filter(name, PROD)
    assert await log.rows("SELECT event FROM waiting_events") == []
    await FilterChangeService(replace(without_events, tell_event=tell_event)).set_filter(name, TEST)
    [(event,)] = await log.rows("SELECT event FROM waiting_events")
    assert event["type"] == "pubsub.subscription.filterChanged"
    assert (await known(log)).filter == TEST
