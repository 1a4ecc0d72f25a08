-- Subscriptions were used just now; those that are written down as used a moment ago already stay as they are.  Rows are
-- locked by key, so that two processes that write down the same uses wait for each other rather than deadlock.
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
