-- Locks cursors: those of all subscriptions in `shard_ids`, which are shards of dead-letter topics, and those of
-- `subscription_id` in `own_shard_ids`.
--
-- The locks are those that claims take, in one order for all callers (docs/decisions/0031-operations.md).
-- parameters: shard_ids int8[], own_shard_ids int8[], subscription_id int8
-- columns: shard_id, subscription_id, name, next_publish_time, next_seq, due_floor, first_seq, retention, filter_path,
--     body_path, ordered
SELECT c.shard_id, c.subscription_id, s.name, c.next_publish_time, c.next_seq, c.due_floor, c.first_seq,
       extract(epoch FROM greatest(s.message_retention, t.message_retention))::float8 AS retention,
       s.filter_path::text AS filter_path, s.body_path::text AS body_path, s.enable_message_ordering AS ordered
FROM cursors AS c
JOIN subscriptions AS s USING (subscription_id)
LEFT JOIN topics AS t USING (topic_id)
WHERE c.shard_id = ANY (%(shard_ids)s::int8[])
   OR c.shard_id = ANY (%(own_shard_ids)s::int8[]) AND c.subscription_id = %(subscription_id)s
ORDER BY c.shard_id, c.subscription_id
FOR UPDATE OF c
