-- Looks at the subscriptions that are about to expire, and adds the time since the last look to that for which they
-- were seen idle: nothing if they were used since then, or if nobody looked for so long that no broker can have run.
-- After such a gap some of the notice is always left.
UPDATE subscriptions
SET idle_watched = CASE
        WHEN idle_watched_at IS NULL OR idle_watched_at <= last_active_at THEN interval '0'
        WHEN idle_watched_at < %(now)s::timestamptz - %(longest_gap)s::interval
            THEN least(idle_watched, least(%(notice)s::interval, expiration_ttl / 2) - %(grace)s::interval)
        ELSE idle_watched + (%(now)s::timestamptz - idle_watched_at)
    END,
    idle_watched_at = %(now)s
WHERE subscription_id IN (
    SELECT subscription_id
    FROM subscriptions
    WHERE last_active_at + expiration_ttl - least(%(notice)s::interval, expiration_ttl / 2) <= %(now)s::timestamptz
      -- Another process has just looked, or does.
      AND (idle_watched_at IS NULL OR idle_watched_at <= %(now)s::timestamptz - %(interval)s::interval)
    ORDER BY subscription_id
    FOR NO KEY UPDATE SKIP LOCKED
)
