-- Inserts failed push attempts.  The lock prevents subscriptions from being deleted meanwhile, as in
-- write_push_states.sql.
WITH known AS (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = ANY(%(subscription_ids)s::bigint[])
    ORDER BY subscription_id
    FOR KEY SHARE
)
INSERT INTO push_failures (
    subscription_id, failed_at, message_id, delivery_attempt, endpoint, status, latency, detail
)
SELECT
    f.subscription_id, f.failed_at, f.message_id, f.delivery_attempt, f.endpoint, f.status, f.latency, f.detail
FROM unnest(
    %(subscription_ids)s::bigint[],
    %(failed_at)s::timestamptz[],
    %(message_ids)s::text[],
    %(delivery_attempts)s::integer[],
    %(endpoints)s::text[],
    %(statuses)s::integer[],
    %(latencies)s::interval[],
    %(details)s::text[]
) WITH ORDINALITY AS f(
    subscription_id, failed_at, message_id, delivery_attempt, endpoint, status, latency, detail, ordinal
)
JOIN known USING (subscription_id)
ORDER BY f.ordinal
