"""A database that goes back to an earlier time gives out no id twice, and delivers what it has (L3)."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest
from sqlalchemy import make_url

from broker.core.acking.delivery_attempts import acknowledge_in_order
from broker.db.driver.database import Database
from broker.db.schema.after_restore import IdsUsedUp, go_on_after_restore
from broker.db.schema.running_brokers import BrokersAtWork
from broker.model.message_id import FIRST_ID_SEQ, message_id, parse_message_id
from tests.cli.processes import run_broker
from tests.fixtures.broker import BrokerProcess
from tests.fixtures.database import begin, temporary_database
from tests.fixtures.dead_letters import make_dead_letters
from tests.fixtures.log import ACK_DEADLINE, Log, make_log, texts

pytestmark = [pytest.mark.slow, pytest.mark.ci]


@contextmanager
def _as_it_was(server_url: str, url: str) -> Iterator[str]:
    """A copy of a database that nobody is connected to: what a restore gives."""
    name = make_url(url).database
    assert name is not None
    with temporary_database(server_url, name) as copy:
        yield copy


@asynccontextmanager
async def _opened(url: str, log: Log | None = None, name: str = "t") -> AsyncIterator[Log]:
    database = Database(url, pool_size=2)
    try:
        now = await begin(database)
        if log is None:
            yield await make_log(database, now, name)
        else:
            yield Log(database, now, log.topic, log.subscription)
    finally:
        await database.close()


async def _ids(log: Log) -> dict[str, tuple[int, int]]:
    """Of each message: shard and sequence."""
    rows = await log.rows("SELECT shard_id, seq, convert_from(data, 'UTF8') FROM messages")
    return {text: (shard_id, seq) for shard_id, seq, text in rows}


async def test_no_id_comes_twice_however_often_it_is_restored(server_url: str, database_url: str) -> None:
    async with _opened(database_url) as first:
        await first.publish("a", "b", "c", key="k")
        [out] = await first.pull(1, ordered=True)
        assert texts([out]) == ["a"]
    given: dict[str, tuple[int, int]] = {}
    with _as_it_was(server_url, database_url) as backup:
        async with _opened(database_url, first) as lost:
            await lost.publish("lost", "lost too", key="k")
            given |= await _ids(lost)
            shard_ids = {(await make_log(lost.database, lost.start, "lost")).shard_id}
        for number in range(2):
            with _as_it_was(server_url, backup) as url:
                gap = go_on_after_restore(url, schema="broker")
                assert (gap.shards, gap.sequences >= 1_000_000) == (1, True)
                async with _opened(url, first) as log:
                    await log.publish(f"new {number}", f"newer {number}", key="k")
                    found = await _ids(log)
                    assert given["a"] == found["a"]
                    new = {id_ for text, id_ in found.items() if text.startswith("new")}
                    assert not new & {*given.values()}
                    given |= found
                    made = (await make_log(log.database, log.start, "made")).shard_id
                    assert made not in shard_ids
                    shard_ids.add(made)
                    assert await _delivered_in_order(log) == ["a", "b", "c", f"new {number}", f"newer {number}"]
    assert len({*given.values()}) == len(given) == 9


async def _delivered_in_order(log: Log) -> list[str]:
    """What was out when the backup was made falls due at its deadline, and holds its key until then."""
    got: list[str] = []
    now = log.start + 2 * ACK_DEADLINE
    while runs := await log.pull(1, now=now, ordered=True, max_run=1):
        got += texts(runs)
        async with log.session() as session:
            acks = {log.name(run): {0} for run in runs}
            await acknowledge_in_order(session, shard_id=log.shard_id, acks=acks, exactly_once=set(), now=now)
    return got


async def test_it_would_without_a_gap(server_url: str, database_url: str) -> None:
    async with _opened(database_url) as first:
        await first.publish("a")
    with _as_it_was(server_url, database_url) as url:
        async with _opened(database_url, first) as lost:
            await lost.publish("lost")
            given = await _ids(lost)
        async with _opened(url, first) as log:
            await log.publish("new")
            assert (await _ids(log))["new"] == given["lost"]


async def test_the_gap_grows_with_what_may_have_been_given_out(log: Log) -> None:
    url = log.database.url
    await log.execute("UPDATE shards SET last_publish_time = last_publish_time - interval '1 day'")
    await log.execute("UPDATE subscriptions SET last_active_at = last_active_at - interval '1 day'")
    a_day = timedelta(days=1) // timedelta(microseconds=1)
    assert a_day < go_on_after_restore(url, schema="broker").sequences < 2 * a_day
    assert (await log.rows("SELECT head > 86400000000, frozen_at FROM shards")) == [(True, None)]


async def test_a_frozen_topic_stays_frozen_and_dead_letters_can_come_back(log: Log) -> None:
    dead_letters = await make_dead_letters(log)
    await dead_letters.give_up("a")
    await dead_letters.dead.execute(
        f"UPDATE shards SET frozen_at = head WHERE shard_id = {dead_letters.dead.shard_id}"
    )
    go_on_after_restore(log.database.url, schema="broker")
    assert await log.rows("SELECT head = frozen_at FROM shards WHERE frozen_at IS NOT NULL") == [(True,)]
    assert len(await dead_letters.redrive()) == 1
    assert await log.pull_texts(max_attempts=1) == ["a"]


async def test_nothing_is_done_while_a_broker_runs_or_where_ids_would_run_out(log: Log) -> None:
    url = log.database.url
    await log.execute(f"UPDATE shards SET head = {FIRST_ID_SEQ - 10}")
    with pytest.raises(IdsUsedUp, match="1 shards have no room"):
        go_on_after_restore(url, schema="broker")
    await log.execute("UPDATE shards SET head = 0")
    await log.execute("INSERT INTO processes VALUES ('p', clock_timestamp(), '0001_baseline', NULL, 18)")
    with pytest.raises(BrokersAtWork):
        go_on_after_restore(url, schema="broker")
    assert await log.rows("SELECT head FROM shards") == [(0,)]


def test_the_ids_of_topics_that_were_made_late_are_ids() -> None:
    """They are longer than 63 bits once there were ten thousand shards."""
    for shard_id in (1, 9_223, 9_224, 1_000_000_000):
        assert parse_message_id(message_id(shard_id, 7)) == (shard_id, 7)


def test_the_command_is_refused_while_a_broker_serves_and_done_afterwards(
    start_broker: Callable[..., BrokerProcess], database_url: str
) -> None:
    broker = start_broker("--database-url", database_url, "--port", "0")
    refused = run_broker("backup", "restored", "--database-url", database_url)
    assert refused.returncode == 1
    assert "broker processes are at work on the schema broker" in refused.stderr
    broker.stop()
    done = run_broker("backup", "restored", "--database-url", database_url)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\n0 shards leave out " in done.stdout
