-- The lock keeps a subscription from being deleted meanwhile: no state outlives it.  A pause ends by resume_pushes
-- only, so a state without a reason leaves the reason that is there.
WITH known AS (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = ANY(%(subscription_ids)s::bigint[])
    ORDER BY subscription_id
    FOR KEY SHARE
)
INSERT INTO push_states AS p (
    subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, retry_at,
    paused_reason
)
SELECT s.*
FROM unnest(
    %(subscription_ids)s::bigint[],
    %(breakers)s::text[],
    %(changed_at)s::timestamptz[],
    %(consecutive_failures)s::integer[],
    %(windows)s::integer[],
    %(outstanding_requests)s::integer[],
    %(retry_at)s::timestamptz[],
    %(paused_reasons)s::text[]
) AS s(subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, retry_at,
    paused_reason)
JOIN known USING (subscription_id)
ORDER BY s.subscription_id
ON CONFLICT (subscription_id) DO UPDATE SET
    breaker = excluded.breaker,
    changed_at = excluded.changed_at,
    consecutive_failures = excluded.consecutive_failures,
    window_size = excluded.window_size,
    outstanding_requests = excluded.outstanding_requests,
    retry_at = excluded.retry_at,
    paused_reason = coalesce(nullif(excluded.paused_reason, ''), p.paused_reason)
