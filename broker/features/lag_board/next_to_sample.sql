-- Returns the next `max_rows` subscriptions in the order of names, in one row.
--
-- * `due_ids`: subscriptions that are due to be sampled.
-- * `resting_ids`: subscriptions at rest, whose values stay the same as long as find_moved.sql and the counts of
--   dead letters find no change.
-- * `counted_ids`, `counts`: subscriptions that may have dead letters, and how many each had.
-- parameters: after text, max_rows int8
-- columns: last_name, found, due_ids, resting_ids, resting_published, counted_ids, counts
WITH next AS (
    SELECT s.subscription_id, s.name, s.detached, l.published_messages, l.dead_letters,
           s.dead_letter_topic IS NOT NULL OR l.dead_letters > 0 AS is_counted,
           l.subscription_id IS NULL
           OR l.undelivered_messages > 0 OR l.outstanding_messages > 0
           OR coalesce(l.incoming_rate <> 0 OR l.outgoing_rate <> 0, true)
           OR (l.state = 'DETACHED') <> s.detached AS is_due
    FROM (
        SELECT subscription_id, name, detached, dead_letter_topic
        FROM subscriptions
        WHERE name > %(after)s
        ORDER BY name
        LIMIT %(max_rows)s
    ) AS s
    LEFT JOIN lag_samples AS l ON l.subscription_id = s.subscription_id
)
SELECT max(name) AS last_name, count(*) AS found,
       coalesce(array_agg(subscription_id) FILTER (WHERE is_due), '{}') AS due_ids,
       coalesce(array_agg(subscription_id) FILTER (WHERE NOT is_due AND NOT detached), '{}') AS resting_ids,
       coalesce(array_agg(published_messages) FILTER (WHERE NOT is_due AND NOT detached), '{}') AS resting_published,
       coalesce(array_agg(subscription_id) FILTER (WHERE is_counted), '{}') AS counted_ids,
       coalesce(array_agg(coalesce(dead_letters, 0)) FILTER (WHERE is_counted), '{}') AS counts
FROM next
