-- Locks a subscription and checks the condition of find_expired_subscriptions.sql again, so that a use or a change
-- of the subscription in between takes precedence.
SELECT subscription_id, last_active_at
FROM subscriptions
WHERE name = %(name)s
  AND last_active_at + expiration_ttl + %(lag)s::interval <= %(now)s::timestamptz
  AND idle_watched_at > last_active_at
  AND idle_watched >= least(%(notice)s::interval, expiration_ttl / 2)
FOR UPDATE
