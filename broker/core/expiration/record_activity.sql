-- Records that subscriptions were used just now, except those for which a use within the last `resolution` is
-- recorded already.  Rows are locked in key order, so that processes that record the same uses wait for each other
-- instead of deadlocking.
UPDATE subscriptions
SET last_active_at = %(now)s
WHERE subscription_id IN (
    SELECT subscription_id
    FROM subscriptions
    WHERE subscription_id = ANY (%(subscription_ids)s::bigint[])
      AND last_active_at < %(now)s::timestamptz - %(resolution)s::interval
    ORDER BY subscription_id
    FOR NO KEY UPDATE
)
