-- The lock, as in write_push_states.sql.
WITH known AS (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = ANY(%(subscription_ids)s::bigint[])
    ORDER BY subscription_id
    FOR KEY SHARE
)
INSERT INTO push_attempts AS p (subscription_id, minute, status, delivered, requests, latency, last_message_id)
SELECT a.subscription_id, a.minute, a.status, a.delivered, a.requests, a.latency, a.last_message_id
FROM unnest(
    %(subscription_ids)s::bigint[],
    %(minutes)s::timestamptz[],
    %(statuses)s::text[],
    %(delivered)s::boolean[],
    %(requests)s::bigint[],
    %(latencies)s::interval[],
    %(last_message_ids)s::text[]
) AS a (subscription_id, minute, status, delivered, requests, latency, last_message_id)
JOIN known USING (subscription_id)
ORDER BY a.subscription_id, a.minute, a.status
ON CONFLICT (subscription_id, minute, status) DO UPDATE SET
    requests = p.requests + excluded.requests,
    latency = p.latency + excluded.latency,
    last_message_id = excluded.last_message_id
