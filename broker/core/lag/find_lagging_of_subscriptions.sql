-- Returns which subscriptions may have a backlog, by the rule of find_lagging.sql, without reading the catalog.
-- parameters: subscription_ids int8[]
-- columns: subscription_id
SELECT DISTINCT c.subscription_id
FROM cursors AS c
JOIN shards AS h ON h.shard_id = c.shard_id
WHERE c.subscription_id = ANY (%(subscription_ids)s::int8[])
  AND (h.head >= c.next_seq OR EXISTS (
      SELECT FROM delivery_attempts AS a
      WHERE a.shard_id = c.shard_id AND a.subscription_id = c.subscription_id
  ))
