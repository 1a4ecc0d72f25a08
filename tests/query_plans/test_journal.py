"""A journal is read by index: there may be a million rows of each subscription."""

import pytest

from broker.db.driver import statements
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of


@pytest.fixture
async def crowded(log: Log) -> Log:
    await log.execute(
        "INSERT INTO delivery_journal (shard_id, subscription_id, bucket, time, event, attempt, seqs, principal,"
        " client, answer) SELECT 1 + n % 4, 1 + n % 20, n / 1000, now() - n * interval '1 second', 'ACKED', 1,"
        " int8multirange(int8range(n, n + 1)), '', '', '' FROM generate_series(1, 30000) AS n"
    )
    await log.execute(
        "INSERT INTO delivery_records (shard_id, subscription_id, bucket, recorded_at, principal, client, answer,"
        " entries) SELECT 1 + n % 4, 1 + n % 20, n / 1000, now(), '', '', '', ''"
        " FROM generate_series(1, 30000) AS n"
    )
    await log.execute("ANALYZE delivery_journal")
    await log.execute("ANALYZE delivery_records")
    return log


@pytest.mark.parametrize(
    ("statement", "index", "asked"),
    [
        ("list_written", "delivery_journal_number_idx", {"after": 29_000, "until": 2**62, "since": "1970-01-01"}),
        ("find_written_since", "delivery_journal_time_idx", {"since": "2026-01-01", "max_mixed": 10}),
        ("read_journal", "delivery_journal_pkey", {"shard_id": 2, "seq": 25_000, "bucket": 25}),
        ("read_delivery_records", "shard_id_subscription_id_bucket_idx", {"shard_id": 2, "bucket": 25}),
    ],
)
async def test_rows_of_a_journal_are_found_by_index(
    crowded: Log, statement: str, index: str, asked: dict[str, object]
) -> None:
    parameters = {"subscription_id": 2, "limit": 100} | asked
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, statements.load(statement), parameters)
    assert index in plan, plan
    assert "Seq Scan" not in plan, plan
