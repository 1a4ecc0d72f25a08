-- The lock, as in write_push_states.sql.
WITH known AS (
    SELECT subscription_id FROM subscriptions WHERE subscription_id = %(subscription_id)s FOR KEY SHARE
)
INSERT INTO push_states (
    subscription_id, breaker, changed_at, consecutive_failures, window_size, outstanding_requests, paused_reason
)
SELECT subscription_id, 'closed', %(now)s, 0, 0, 0, %(reason)s FROM known
ON CONFLICT (subscription_id) DO UPDATE SET paused_reason = excluded.paused_reason
