-- Subscriptions that were idle for their ttl, and were watched for their notice.  A subscription without a ttl has
-- neither.  The same condition stands in lock_expired_subscription.sql.
SELECT name
FROM subscriptions
WHERE last_active_at + expiration_ttl + %(lag)s::interval <= %(now)s::timestamptz
  AND idle_watched_at > last_active_at
  AND idle_watched >= least(%(notice)s::interval, expiration_ttl / 2)
ORDER BY subscription_id
LIMIT %(limit)s
