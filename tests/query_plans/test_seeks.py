"""What a seek counts, and a position shows, is read by index: logs may have ten million messages."""

from datetime import timedelta

import pytest

from broker.db.driver import statements
from tests.fixtures.log import Log
from tests.query_plans.every_statement import fill
from tests.query_plans.test_dead_letters import plan_of
from tests.query_plans.test_hot_statements import HOT_TABLES


@pytest.mark.parametrize("name", ["count_replayed", "read_positions"])
@pytest.mark.parametrize(
    ("filter_path", "body_path"), [(None, None), ('$.a == "b"', None), ("exists($)", "exists($[1].a)")]
)
async def test_nothing_is_read_from_end_to_end(
    log: Log, name: str, filter_path: str | None, body_path: str | None
) -> None:
    await fill(log)
    parameters = {
        "shard_id": log.shard_id,
        "subscription_id": log.subscription.subscription_id,
        "retained_since": log.start - timedelta(days=7),
        "filter_path": filter_path,
        "body_path": body_path,
        "from_publish_time": log.start,
        "from_seq": 1,
        "until_publish_time": log.start + timedelta(hours=1),
        "until_seq": 1_000_000,
        "max_scanned": 10_000,
        "max_compared": 10_000,
    }
    text = statements.load(name)
    used = {key: value for key, value in parameters.items() if f"%({key})s" in text}
    async with log.database.connection() as connection:
        plan = await plan_of(connection, text, used)
    # A partition that is known to be empty is read so: that costs nothing.
    scanned = [line for line in plan.splitlines() if "Seq Scan on " in line and "cost=0.00..0.00" not in line]
    tables = [line.partition("Seq Scan on ")[2] for line in scanned]
    assert not [table for table in tables if HOT_TABLES.match(table)], plan
