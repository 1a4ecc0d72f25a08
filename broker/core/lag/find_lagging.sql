-- Returns the next `max_rows` subscriptions between two names, in the order of names, and whether each may have a
-- backlog: a message after a cursor, or a delivery attempt.
--
-- If `may_lag` is false, there is certainly no backlog; read_lag.sql measures the others.
-- parameters: after text, before text, max_rows int8
-- columns: name, may_lag
SELECT s.name, work.found IS NOT NULL AS may_lag
FROM subscriptions AS s
LEFT JOIN LATERAL (
    SELECT true AS found
    FROM cursors AS c
    JOIN shards AS h ON h.shard_id = c.shard_id
    WHERE c.subscription_id = s.subscription_id
      AND (h.head >= c.next_seq OR EXISTS (
          SELECT FROM delivery_attempts AS a
          WHERE a.shard_id = c.shard_id AND a.subscription_id = c.subscription_id
      ))
    LIMIT 1
) AS work ON true
WHERE s.name > %(after)s AND s.name < %(before)s
ORDER BY s.name
LIMIT %(max_rows)s
