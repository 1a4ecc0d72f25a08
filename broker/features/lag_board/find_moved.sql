-- Returns which subscriptions have a backlog, or a topic whose number of messages differs from `published`, the
-- number at the last sample.
-- parameters: subscription_ids int8[], published int8[]
-- columns: subscription_id
SELECT w.subscription_id
FROM unnest(%(subscription_ids)s::int8[], %(published)s::int8[]) AS w (subscription_id, published)
JOIN cursors AS c ON c.subscription_id = w.subscription_id
JOIN shards AS h ON h.shard_id = c.shard_id
GROUP BY w.subscription_id, w.published
HAVING sum(h.head) <> w.published
    OR bool_or(h.head >= c.next_seq OR EXISTS (
        SELECT FROM delivery_attempts AS a
        WHERE a.shard_id = c.shard_id AND a.subscription_id = c.subscription_id
    ))
