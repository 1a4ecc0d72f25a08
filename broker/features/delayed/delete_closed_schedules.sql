-- Deletes some of the scheduled messages of a shard whose topic was deleted.
-- parameters: shard_id int8, limit int8
DELETE FROM scheduled_messages AS m
USING (
    SELECT id_seq FROM scheduled_messages WHERE shard_id = %(shard_id)s ORDER BY id_seq LIMIT %(limit)s
) AS gone
WHERE m.shard_id = %(shard_id)s AND m.id_seq = gone.id_seq
  AND NOT EXISTS (SELECT FROM shards AS s WHERE s.shard_id = %(shard_id)s AND s.open)
