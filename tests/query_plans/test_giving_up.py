"""Looking for dead letters does not read subscriptions that give nothing up."""

from broker.db.driver import statements
from tests.fixtures.log import Log

_FIND = statements.load("find_dead_letter_work")


async def test_subscriptions_without_a_dead_letter_topic_are_passed_by(log: Log) -> None:
    await log.execute(
        "INSERT INTO subscriptions (name, topic, topic_id, retain_acked_messages,"
        " message_retention, enable_message_ordering, detached, created_at,"
        " last_active_at) SELECT 'projects/p/subscriptions/many-' || n, s.topic, s.topic_id, false,"
        " s.message_retention, false, false, s.created_at, s.created_at"
        " FROM subscriptions AS s, generate_series(1, 20000) AS n"
    )
    await log.execute("ANALYZE subscriptions")
    query = "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) " + _FIND.replace("%(now)s", "now()")
    plan = [line for (line,) in await log.rows(query)]
    assert any("subscriptions_dead_letter_idx" in line for line in plan), plan
    assert not any("Seq Scan on subscriptions" in line for line in plan), plan
