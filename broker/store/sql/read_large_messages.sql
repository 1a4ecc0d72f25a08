-- As read_fresh_messages, where messages are large: `preceding_bytes` ends the read where every waiting pull has its
-- fill, for a thousand messages may be 10 MB each.  Adding up costs a fifth of a read of small ones.
-- parameters: shard_id int8, subscription_id int8, retained_since timestamptz, max_messages int8, max_bytes
--     int8
SELECT seq, publish_time, ordering_key, attributes, data
FROM (
    SELECT m.seq, m.publish_time, m.ordering_key, m.attributes::text AS attributes, m.data,
           sum(m.size) OVER (
               ORDER BY m.publish_time, m.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM cursors AS c
    CROSS JOIN LATERAL (
        SELECT l.seq, l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data, l.size
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
          AND l.seq >= c.next_seq
          AND l.publish_time >= c.next_publish_time
          AND l.publish_time >= %(retained_since)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_messages)s
    ) AS m
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
) AS counted
WHERE preceding_bytes IS NULL OR preceding_bytes < %(max_bytes)s
ORDER BY publish_time, seq
