"""The subscriptions of a page of topics, and their samples, are found by index: there are 10,000 of each."""

import pytest

from broker.db.driver import statements
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of


@pytest.fixture
async def crowded(log: Log) -> Log:
    await log.execute(
        "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages, message_retention,"
        " enable_message_ordering, detached, created_at, last_active_at)"
        " SELECT 'projects/p/subscriptions/s' || n, 'projects/p/topics/t' || n % 1000, 1000 + n % 1000, false,"
        " '7d', false, false, now(), now() FROM generate_series(1, 10000) AS n"
    )
    await log.execute(
        "INSERT INTO lag_samples (subscription_id, sampled_at, undelivered_messages, is_estimated,"
        " undelivered_bytes, oldest_unacked_at, outstanding_messages, blocked_messages, dead_letters,"
        " published_messages, state, details) SELECT subscription_id, now(), 1, false, 10, now(), 0, 0, 0, 1,"
        " 'NO_CONSUMERS', '{}' FROM subscriptions"
    )
    for table in ("subscriptions", "lag_samples"):
        await log.execute(f"ANALYZE {table}")
    return log


async def test_subscriptions_of_topics_are_found_by_index(crowded: Log) -> None:
    asked: dict[str, object] = {
        "topic_ids": [1000 + number for number in range(50)],
        "project_prefix": "projects/p/",
        "states": ["NO_CONSUMERS", "CAUGHT_UP"],
        "not_sampled": "NOT_SAMPLED",
    }
    async with crowded.database.connection() as connection:
        plan = await plan_of(connection, statements.load("read_topic_subscriptions"), asked)
    assert "ix_subscriptions_topic_id" in plan, plan
    assert "Seq Scan on subscriptions" not in plan, plan
