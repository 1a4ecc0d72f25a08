-- Returns subscriptions that were idle for their whole time to live, and were observed to be idle for their notice
-- period.  Subscriptions without a time to live are never returned.  lock_expired_subscription.sql repeats the
-- condition.
SELECT name
FROM subscriptions
WHERE last_active_at + expiration_ttl + %(lag)s::interval <= %(now)s::timestamptz
  AND idle_watched_at > last_active_at
  AND idle_watched >= least(%(notice)s::interval, expiration_ttl / 2)
ORDER BY subscription_id
LIMIT %(limit)s
