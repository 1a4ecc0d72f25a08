-- Finds as find_moved.sql does, where cursors, heads and attempts are distributed; each node asks its own.
-- parameters: subscription_ids int8[], published int8[]
-- columns: subscription_id
SELECT subscription_id
FROM (
    SELECT subscription_id, sum(head) AS published, bool_or(has_backlog) AS has_backlog
    FROM (
        SELECT c.subscription_id, h.head,
               h.head >= c.next_seq OR EXISTS (
                   SELECT FROM delivery_attempts AS a
                   WHERE a.shard_id = c.shard_id AND a.subscription_id = c.subscription_id
               ) AS has_backlog
        FROM cursors AS c
        JOIN shards AS h ON h.shard_id = c.shard_id
        WHERE c.subscription_id = ANY (%(subscription_ids)s::int8[])
    ) AS of_shard
    GROUP BY subscription_id
) AS of_subscription
JOIN unnest(%(subscription_ids)s::int8[], %(published)s::int8[]) AS w (subscription_id, was_published)
USING (subscription_id)
WHERE published <> was_published OR has_backlog
