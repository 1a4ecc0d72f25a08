"""What is written and deleted of dead letters reads by index: there may be as many as messages."""

from datetime import timedelta

import pytest

from broker.store.driver import statements
from broker.store.driver.database import Connection
from broker.store.log.dead_letters import _INSERT_DEAD_LETTERS
from tests.fixtures.log import Log


@pytest.fixture
async def crowded(log: Log) -> Log:
    await log.execute(
        "INSERT INTO dead_letters SELECT 1 + n % 20, now() - n * interval '1 second', n, 1 + n % 20, n, now(), 't',"
        " 1, 's', 5, 'nack' FROM generate_series(1, 50000) AS n"
    )
    await log.execute(
        "INSERT INTO straggler_batches SELECT 1 + n % 20, now() - n * interval '1 second', n, 1, 3, NULL, NULL,"
        " '{\"\\\\x00\"}' FROM generate_series(1, 9000) AS n"
    )
    await log.execute(
        "INSERT INTO shards (topic_id, ordinal, last_publish_time)"
        " SELECT 1000 + n, 0, now() FROM generate_series(1, 2000) AS n"
    )
    for table in ("dead_letters", "straggler_batches", "shards"):
        await log.execute(f"ANALYZE {table}")
    return log


async def plan_of(connection: Connection, statement: str, parameters: dict[str, object]) -> str:
    rows = await (await connection.execute("EXPLAIN " + statement, parameters, prepare=False)).fetchall()
    return "\n".join(row[0] for row in rows)


async def test_rows_of_letters_that_are_gone_are_found_by_their_time(crowded: Log) -> None:
    since = crowded.start - timedelta(hours=10)
    parameters = {"since": since, "until": since + timedelta(minutes=10), "limit": 1_000}
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, statements.load("delete_dead_letters"), parameters)
    assert "dead_letters_publish_time_idx" in plan, plan
    assert "Seq Scan on dead_letters" not in plan, plan


async def test_rows_are_written_without_looking_at_others(crowded: Log) -> None:
    text = statements.load("insert_dead_letters")
    parameters = {
        "shard_id": crowded.shard_id,
        "count": 1,
        "source_shard_id": 1,
        "source_topic": "t",
        "subscription_id": 1,
        "subscription": "s",
        "source_seqs": [1],
        "source_publish_times": [crowded.start],
        "delivery_attempts": [5],
        "reasons": ["nack"],
    }
    assert parameters.keys() == dict(_INSERT_DEAD_LETTERS.parameters).keys()
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, text, parameters)
    assert "shards_pkey" in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_what_became_of_a_message_is_found_by_where_it_was(crowded: Log) -> None:
    query = "SELECT * FROM dead_letters WHERE source_shard_id = %(shard_id)s AND source_seq = %(seq)s"
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, query, {"shard_id": 3, "seq": 42})
    assert "dead_letters_source_idx" in plan, plan
