-- Returns the publish time of the first retained message at or after a position.
SELECT l.publish_time
FROM message_batches AS l
WHERE l.shard_id = %(shard_id)s
  AND (l.publish_time, l.last_seq) >= (%(next_publish_time)s, %(next_seq)s)
  AND l.publish_time >= %(next_publish_time)s
  AND l.publish_time >= %(retained_since)s
ORDER BY l.publish_time, l.last_seq
LIMIT 1
