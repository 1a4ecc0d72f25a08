-- Counts the unresolved dead letters of subscriptions, up to `max_counted` for each.  Subscriptions without any
-- have no row.
-- parameters: subscription_ids int8[], max_counted int8
-- columns: subscription_id, count
SELECT w.subscription_id, d.count
FROM unnest(%(subscription_ids)s::int8[]) AS w (subscription_id)
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT FROM dead_letters
        WHERE subscription_id = w.subscription_id AND resolution IS NULL
        LIMIT %(max_counted)s
    ) AS found
) AS d
WHERE d.count > 0
