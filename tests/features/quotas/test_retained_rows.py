"""What a project retains (E4): what its topics' logs must keep, by spans of ten minutes."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import update

from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from broker.core.log.messages import append_messages
from broker.core.log.packing import encode_scheduled
from broker.core.log.partitions import make_partitions_ahead
from broker.core.process.database_clock import DatabaseClock
from broker.db.schema.tables import subscriptions as subscriptions_table
from broker.db.schema.tables import topics as topics_table
from broker.features.delayed.rows import append_due, cancel_scheduled
from broker.features.quotas.quota import UNLIMITED, ProjectQuotas
from broker.features.quotas.quotas import Quotas
from broker.features.quotas.retained_bytes import REFRESH_SECONDS, RetainedBytes
from broker.model.message import NewMessage
from broker.model.message_id import FIRST_ID_SEQ
from tests.core.backlog.test_seek import create_snapshot, seek_to_time
from tests.fixtures.log import Log

_LATER = timedelta(minutes=25)  # than the start: another span, whatever the time is
_HUNDRED = "x" * 100


class Retained:
    """Looks at what the project of a log retains, with a limit.  `later`: what the clock says more."""

    def __init__(self, log: Log, **options: Any) -> None:
        self.later = timedelta()

        class Clock(DatabaseClock):
            def now(clock) -> Any:  # noqa: N805
                return log.start + self.later

        clock = Clock(log.database)
        self.quotas = Quotas(log.database, clock)
        self.replica_reads = RetainedBytes(log.database, clock, self.quotas, **options)

    async def now(self) -> int:
        await self.replica_reads.refresh()
        return self.quotas.amounts("projects/p")["retainedBytes"]


@pytest.fixture
async def retained(log: Log) -> Retained:
    await log.execute("""INSERT INTO project_quotas VALUES ('projects/p', '{"retainedBytes": 1000}', '{}')""")
    async with log.database.connection() as connection:
        await make_partitions_ahead(connection, now=log.start + _LATER)
    retained = Retained(log)
    await retained.quotas.load()
    return retained


async def _publish_later(log: Log) -> None:
    await log.publish(_HUNDRED, now=log.start + _LATER)


async def test_what_nobody_has_got_is_retained_and_what_all_have_acked_is_not(log: Log, retained: Retained) -> None:
    await log.publish(_HUNDRED, _HUNDRED)
    assert await retained.now() == 200
    await log.publish(_HUNDRED)
    assert await retained.now() == 300  # with what is new alone
    [delivery] = await log.pull()
    assert await retained.now() == 300
    await log.acknowledge(delivery)
    assert await retained.now() == 0


async def test_what_a_subscription_or_a_topic_keeps_of_acked_messages_is_retained_as_long(
    log: Log, retained: Retained
) -> None:
    await log.publish(_HUNDRED)
    await log.acknowledge((await log.pull())[0])
    for table, values in (
        (topics_table, {"message_retention": timedelta(minutes=10)}),
        (topics_table, {"message_retention": None}),
        (subscriptions_table, {"retain_acked_messages": True, "message_retention": timedelta(minutes=10)}),
    ):
        async with log.database.transaction() as connection:
            await connection.execute(update(table).values(values))
        retained.later = timedelta()
        assert await retained.now() == (0 if None in values.values() else 100)
        retained.later = _LATER
        assert await retained.now() == 0


async def test_a_message_that_is_long_out_keeps_its_span_and_not_what_came_later(
    log: Log, retained: Retained
) -> None:
    await log.publish(_HUNDRED)
    await log.pull()
    retained.later = _LATER
    await _publish_later(log)
    [later] = await log.pull(now=log.start + timedelta(seconds=1))
    assert await retained.now() == 200
    await log.acknowledge(later)
    assert await retained.now() == 100


async def test_the_next_messages_of_a_key_that_waits_are_retained(log: Log, retained: Retained) -> None:
    await log.publish(_HUNDRED, key="k")
    await log.pull(1, ordered=True)
    await log.publish(_HUNDRED, now=log.start + _LATER, key="k")
    retained.later = _LATER
    assert await log.pull(now=log.start + timedelta(seconds=1), ordered=True) == []
    assert await retained.now() == 200


async def test_what_a_snapshot_holds_is_retained(log: Log, retained: Retained) -> None:
    await log.publish(_HUNDRED)
    await create_snapshot(log)
    await log.acknowledge((await log.pull())[0])
    assert await retained.now() == 100


async def test_a_seek_back_is_found_though_its_messages_were_not_wanted_before(
    log: Log, retained: Retained
) -> None:
    await log.publish(_HUNDRED)
    await log.acknowledge((await log.pull())[0])
    retained.later = _LATER
    await _publish_later(log)
    await log.acknowledge((await log.pull(now=log.start + _LATER))[0])
    assert await retained.now() == 0
    since = log.start - timedelta(hours=1)
    await seek_to_time(log, since, now=log.start + _LATER, replay_since=since)
    assert await retained.now() == 200


async def test_the_log_of_a_deleted_topic_belongs_to_the_projects_of_its_subscriptions(
    log: Log, retained: Retained
) -> None:
    await log.publish(_HUNDRED)
    async with log.database.transaction() as connection:
        await topics.delete_topic(connection, topic=log.topic)
    assert await retained.now() == 100
    async with log.database.transaction() as connection:
        await subscriptions.delete_subscription(connection, subscription_id=log.subscription.subscription_id)
    assert await retained.now() == 0


async def test_a_long_log_is_read_in_parts(log: Log, retained: Retained) -> None:
    for _ in range(5):
        await log.publish(_HUNDRED)
    little_by_little = Retained(log, batches=2)
    await little_by_little.quotas.load()
    assert await little_by_little.now() == 500


async def test_a_look_comes_before_its_time_when_half_of_what_was_left_may_be_gone(log: Log) -> None:
    ticks = 1_000.0
    clock = DatabaseClock(log.database)
    await clock.synchronise()
    defaults = ProjectQuotas({"retainedBytes": 1_000})
    quotas = Quotas(log.database, clock, defaults=defaults, processes=lambda: 2, ticks=lambda: ticks)
    replica_reads = RetainedBytes(log.database, clock, quotas, ticks=lambda: ticks)
    gauge = quotas.publishing("projects/p", "")
    assert await replica_reads.run_once() == 1  # the first comes at once
    gauge.take(ticks, size=249)
    assert await replica_reads.run_once() == 0
    gauge.take(ticks, size=1)  # and another process as much
    assert await replica_reads.run_once() == 1
    assert quotas.amounts("projects/p")["retainedBytes"] == 0  # nothing was published after all
    assert await replica_reads.run_once() == 0
    ticks += REFRESH_SECONDS
    assert await replica_reads.run_once() == 1


async def test_with_a_limit_for_all_projects_each_is_looked_at_but_for_those_that_have_none(log: Log) -> None:
    await log.publish(_HUNDRED)
    clock = DatabaseClock(log.database)
    quotas = Quotas(log.database, clock, defaults=ProjectQuotas({"retainedBytes": 10}))
    replica_reads = RetainedBytes(log.database, clock, quotas)
    await clock.synchronise()
    assert (await replica_reads.refresh(), quotas.amounts("projects/p")["retainedBytes"]) == (1, 100)
    await log.execute(
        f"""INSERT INTO project_quotas VALUES ('projects/p', '{{"retainedBytes": {UNLIMITED}}}', '{{}}')"""
    )
    await quotas.load()
    assert (await replica_reads.refresh(), quotas.amounts("projects/p")["retainedBytes"]) == (0, 0)


async def test_what_waits_for_its_time_is_retained_until_it_is_cancelled_or_came_and_was_acked(
    log: Log, retained: Retained
) -> None:
    due_at = log.start + timedelta(seconds=10)
    batch = encode_scheduled([NewMessage(data=b"x" * 100)] * 5, [due_at] * 5)
    replica_reads = Retained(log, waiting=2)
    await replica_reads.quotas.load()
    async with log.session() as session:
        await append_messages(session, shard_id=log.shard_id, requests=[batch], now=log.start)
        assert await replica_reads.now() == 500
        assert await cancel_scheduled(session, shard_id=log.shard_id, id_seq=FIRST_ID_SEQ + 1, now=log.start)
        assert await retained.now() == 400
        assert len(await append_due(session, shard_id=log.shard_id, now=due_at)) == 4
    assert await retained.now() == 400
    await log.acknowledge((await log.pull(now=due_at))[0])
    assert await retained.now() == 0
