-- Updates for how long the subscriptions that are about to expire were observed to be idle: adds the time since the
-- last observation.  The value starts again at 0 if the subscription was used since then.  Nothing is added after a
-- gap so long that no broker can have been running, and at least `grace` of the notice period is left after one.
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
      -- Skips rows that another process has just updated; SKIP LOCKED skips those that it is updating.
      AND (idle_watched_at IS NULL OR idle_watched_at <= %(now)s::timestamptz - %(interval)s::interval)
    ORDER BY subscription_id
    FOR NO KEY UPDATE SKIP LOCKED
)
