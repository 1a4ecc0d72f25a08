-- Returns shards as find_scheduled_shards.sql does; each node reads all of its shards.
-- columns: shard_id, due_at, open
SELECT s.shard_id,
       (SELECT min(m.due_at) FROM scheduled_messages AS m WHERE m.shard_id = s.shard_id) AS due_at,
       s.open
FROM shards AS s
WHERE s.frozen_at IS NULL AND EXISTS (SELECT FROM scheduled_messages AS m WHERE m.shard_id = s.shard_id)
