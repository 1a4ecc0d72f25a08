-- Reads all dead letters instead of looking each up, because they are not in the shards of the retracted messages.
DELETE FROM retracted_messages AS d
USING (
    SELECT r.shard_id, r.id_seq
    FROM retracted_messages AS r
    WHERE r.publish_time < %(before)s
      AND (r.shard_id, coalesce(r.seq, 0)) NOT IN (
          SELECT l.source_shard_id, l.source_seq FROM dead_letters AS l WHERE l.source_shard_id IS NOT NULL
      )
    ORDER BY r.publish_time
    LIMIT %(limit)s
) AS gone
WHERE d.shard_id = gone.shard_id AND d.id_seq = gone.id_seq
