-- Returns the messages that a cursor passes when it moves to a message that is removed from the backlog.  Expired
-- messages are included: a claim that finds them in a row drops and counts them.
-- parameters: shard_id int8, subscription_id int8, filter_path jsonpath, body_path jsonpath, until_seq int8,
--     until_publish_time timestamptz, max_messages int8
-- columns: seq, publish_time, ordering_key
SELECT l.seq, l.publish_time, l.ordering_key
FROM cursors AS c
CROSS JOIN LATERAL (
    SELECT m.seq, m.publish_time, m.ordering_key
    FROM messages AS m
    WHERE m.shard_id = %(shard_id)s
      AND (m.publish_time, m.last_seq) >= (c.next_publish_time, c.next_seq)
      AND m.publish_time >= c.next_publish_time
      AND m.publish_time <= %(until_publish_time)s
      AND m.seq >= c.next_seq
      AND m.seq <= %(until_seq)s
      AND (%(filter_path)s::jsonpath IS NULL OR m.attributes @@ %(filter_path)s::jsonpath)
      AND (%(body_path)s::jsonpath IS NULL OR message_matches(
          m.attributes, m.body, m.publish_time, %(body_path)s::jsonpath
      ))
    ORDER BY m.publish_time, m.last_seq, m.seq
    LIMIT %(max_messages)s
) AS l
WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
ORDER BY l.seq
