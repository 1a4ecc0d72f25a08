-- Pauses the pushes of a subscription, if it has this endpoint (null: any), and, with `unless_paused`, only if it
-- is not paused yet.
--
-- The lock prevents the subscription from being deleted meanwhile, as in write_push_states.sql; it also waits for a
-- transaction that is changing the push config.
WITH known AS (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = %(subscription_id)s
      AND (%(endpoint)s::text IS NULL OR settings #>> '{pushConfig,pushEndpoint}' = %(endpoint)s)
    FOR KEY SHARE
)
INSERT INTO push_states AS p (
    subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, paused_reason,
    paused_at, paused_by
)
SELECT subscription_id, 'closed', %(now)s, 0, 0, 0, %(reason)s, %(now)s, %(by)s FROM known
ON CONFLICT (subscription_id) DO UPDATE SET
    paused_reason = excluded.paused_reason,
    paused_at = excluded.paused_at,
    paused_by = excluded.paused_by
WHERE NOT %(unless_paused)s OR p.paused_reason = ''
