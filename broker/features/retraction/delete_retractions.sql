-- Deletes up to `limit` retractions of messages that the log would no longer have, and that no dead letter could
-- bring back.
DELETE FROM retracted_messages AS d
USING (
    SELECT r.shard_id, r.id_seq
    FROM retracted_messages AS r
    WHERE r.publish_time < %(before)s
      AND NOT EXISTS (
          SELECT FROM dead_letters AS l WHERE l.source_shard_id = r.shard_id AND l.source_seq = r.seq
      )
    ORDER BY r.publish_time
    LIMIT %(limit)s
) AS gone
WHERE d.shard_id = gone.shard_id AND d.id_seq = gone.id_seq
