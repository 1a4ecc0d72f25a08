-- Returns the dead letters of a message, the newest last.
-- parameters: shard_id int8, seq int8, subscription_ids int8[]
-- columns: subscription_id, shard_id, seq, publish_time, reason, delivery_attempts, resolution, resolved_at,
--     resolved_by, successor_shard, successor_seq
SELECT subscription_id, shard_id, seq, publish_time, reason, delivery_attempts, resolution, resolved_at, resolved_by,
       successor_shard, successor_seq
FROM dead_letters
WHERE source_shard_id = %(shard_id)s
  AND source_seq = %(seq)s
  AND subscription_id = ANY (%(subscription_ids)s::int8[])
ORDER BY publish_time
