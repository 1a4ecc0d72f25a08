"""Listing what publishes on a topic, and watching dead-letter policies, reads no more than what could be shown."""

from datetime import UTC, datetime

from broker.db.driver import statements
from tests.fixtures.log import Log
from tests.query_plans.test_dead_letters import plan_of


async def _fill(log: Log) -> None:
    """Many schedules, each of another topic, and many subscriptions, few of which have a dead-letter policy."""
    await log.execute(
        "INSERT INTO schedules"
        " (name, definition, anchor, next_at, paused, ticks, created_by, created_at, updated_at)"
        " SELECT 'projects/p' || n % 100 || '/schedules/s' || n,"
        " jsonb_build_object('topic', 'projects/p/topics/t' || n), now(), now(), false, 0, '', now(), now()"
        " FROM generate_series(1, 20000) AS n"
    )
    await log.execute(
        "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages,"
        " message_retention, enable_message_ordering, detached, created_at,"
        " last_active_at, dead_letter_topic)"
        " SELECT 'projects/p/subscriptions/many-' || n, s.topic, s.topic_id, false,"
        " s.message_retention, false, false, s.created_at, s.created_at,"
        " CASE WHEN n % 100 = 0 THEN 'projects/q/topics/t' END"
        " FROM subscriptions AS s, generate_series(1, 20000) AS n"
    )
    for table in ("schedules", "subscriptions"):
        await log.execute(f"ANALYZE {table}")


async def test_the_publishers_of_a_topic_are_found_by_index(log: Log) -> None:
    await _fill(log)
    parameters: dict[str, object] = {"topic": "projects/p/topics/t7", "after": "", "size": 101}
    async with log.database.connection() as connection:
        plan = await plan_of(connection, statements.load("list_topic_publishers"), parameters)
        watching = await plan_of(connection, statements.load("list_dead_letter_policies"), {})
        parameters |= {"topic_id": 7, "now": datetime.now(UTC), "most": 100}
        referring = await plan_of(connection, statements.load("list_topic_references"), parameters)
    assert "schedules_topic_idx" in plan, plan
    assert "subscriptions_dead_letter_idx" in plan, plan
    assert "Seq Scan on schedules" not in plan, plan
    assert "Seq Scan on subscriptions" not in plan, plan
    assert "Seq Scan on subscriptions" not in watching, watching
    assert "schedules_topic_idx" in referring, referring
    assert "Seq Scan on schedules" not in referring, referring
    assert "Seq Scan on subscriptions" not in referring, referring
