-- Deletes closed shards that no cursor, snapshot or scheduled message refers to.
DELETE FROM shards AS h
WHERE NOT h.open
  AND NOT EXISTS (SELECT FROM cursors AS c WHERE c.shard_id = h.shard_id)
  AND NOT EXISTS (SELECT FROM snapshot_positions AS p WHERE p.shard_id = h.shard_id)
  AND NOT EXISTS (SELECT FROM scheduled_messages AS m WHERE m.shard_id = h.shard_id)  -- these are deleted first
RETURNING h.shard_id
