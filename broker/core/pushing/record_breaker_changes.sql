-- The lock, as in write_push_states.sql.
WITH known AS (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = ANY(%(subscription_ids)s::bigint[])
    ORDER BY subscription_id
    FOR KEY SHARE
)
INSERT INTO breaker_changes (subscription_id, changed_at, state, consecutive_failures, status, reason)
SELECT c.subscription_id, c.changed_at, c.state, c.consecutive_failures, c.status, c.reason
FROM unnest(
    %(subscription_ids)s::bigint[],
    %(changed_at)s::timestamptz[],
    %(states)s::text[],
    %(consecutive_failures)s::integer[],
    %(statuses)s::integer[],
    %(reasons)s::text[]
) WITH ORDINALITY AS c (subscription_id, changed_at, state, consecutive_failures, status, reason, ordinal)
JOIN known USING (subscription_id)
ORDER BY c.ordinal
