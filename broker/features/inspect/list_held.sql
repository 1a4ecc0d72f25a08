-- Returns messages of the log before the cursor that wait for the ordering key of one row, after a message.
-- parameters: shard_id int8, subscription_id int8, attempt_id int8, part int8, publish_time timestamptz, seq int8,
--     retained_since timestamptz, max_messages int8
-- columns: seq, publish_time
SELECT m.seq, m.publish_time
FROM delivery_attempts AS a
JOIN cursors AS c ON c.shard_id = a.shard_id AND c.subscription_id = a.subscription_id
CROSS JOIN LATERAL (
    SELECT l.seq, l.publish_time
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND l.ordering_key = a.ordering_key
      AND (l.publish_time, l.last_seq) >= (greatest(a.first_publish_time, %(publish_time)s), %(seq)s + 1)
      AND (l.publish_time, l.seq) < (c.next_publish_time, c.next_seq)
      AND l.publish_time >= greatest(a.first_publish_time, %(publish_time)s)
      AND l.publish_time <= c.next_publish_time
      AND l.publish_time >= %(retained_since)s
      AND l.seq > %(seq)s
      AND l.seq <@ a.waiting
    ORDER BY l.publish_time, l.last_seq
    LIMIT %(max_messages)s
) AS m
WHERE a.shard_id = %(shard_id)s
  AND a.subscription_id = %(subscription_id)s
  AND a.attempt_id = %(attempt_id)s
  AND a.part = %(part)s
ORDER BY m.seq
