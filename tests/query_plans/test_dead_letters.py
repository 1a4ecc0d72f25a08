"""What is written and deleted of dead letters reads by index: there may be as many as messages."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker.db.driver import statements
from broker.db.driver.database import Connection
from broker.db.driver.statements import Statement
from broker.features.dead_letters.dead_letter_groups import _READ_DEAD_LETTERS
from broker.features.dead_letters.forwarding.forwarding import _INSERT_DEAD_LETTERS
from broker.features.dead_letters.redriving.rows import _READ_DEAD_LETTER_SHARDS
from tests.fixtures.log import Log
from tests.interleavings.steps import execute
from tests.query_plans.every_statement import literal
from tests.query_plans.test_hot_statements import nodes


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


async def test_rows_of_dead_letters_that_are_gone_are_found_by_their_time(crowded: Log) -> None:
    since = crowded.start - timedelta(hours=10)
    parameters: dict[str, object] = {"since": since, "until": since + timedelta(minutes=10), "limit": 1_000}
    parameters["kept_since"] = since
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
        "responses": [""],
        "fingerprints": [""],
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


@pytest.mark.parametrize("statement", [_READ_DEAD_LETTERS, _READ_DEAD_LETTER_SHARDS])
async def test_a_step_of_a_redrive_reads_its_dead_letters_alone_however_many_there_are(
    log: Log, statement: Statement
) -> None:
    """By a generic plan, as it is sent.  With the range of times looked up each step sorted all dead letters, and a
    redrive of a million took ten minutes.
    """
    await log.execute(
        "INSERT INTO dead_letters SELECT 1, now() - n * interval '1 second', n, 7, n, now(), 't', 1, 's', 5, 'nack'"
        " FROM generate_series(1, 20000) AS n"
    )
    await log.execute("ANALYZE dead_letters")
    given: dict[str, Any] = {
        "source_shard_id": 7,
        "subscription_id": 1,
        "from_seq": 10_000,
        "since": datetime(2000, 1, 1, tzinfo=UTC),
        "until": datetime(2100, 1, 1, tzinfo=UTC),
        "reasons": [],
        "id_shards": [],
        "id_seqs": [],
        "filter_path": None,
        "body_path": None,
        "max_scanned": 520,
    }
    async with log.database.hot() as connection:
        await connection.run((statement, {parameter: given[parameter] for parameter, _ in statement.parameters}))
        values = ", ".join(literal(given[parameter], type_) for parameter, type_ in statement.parameters)
        await execute(connection, "SET plan_cache_mode = force_generic_plan")
        asked = f'EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE "{statement.name.decode()}" ({values})'
        [(plan,)] = await execute(connection, asked)
    [scan] = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") == "dead_letters"]
    assert scan["Actual Rows"] == 520, plan
    assert scan["Index Name"] == "dead_letters_source_idx", plan
