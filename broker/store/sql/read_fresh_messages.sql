-- Messages from the cursor on.  Both conditions on the cursor are needed: the row comparison gives the order and
-- the early stop, the plain one lets PostgreSQL prune partitions while it runs.
-- One larger than `max_size` comes without its data: if none is, they fit the byte budget however many come, and
-- nothing need be added up.
-- parameters: shard_id int8, subscription_id int8, retained_since timestamptz, max_messages int8,
--     max_size int8
SELECT m.seq, m.publish_time, m.ordering_key, m.attributes::text AS attributes,
       CASE WHEN octet_length(m.data) + pg_column_size(m.attributes) <= %(max_size)s THEN m.data END AS data
FROM cursors AS c
CROSS JOIN LATERAL (
    SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data
    FROM messages AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.seq) >= (c.next_publish_time, c.next_seq)
      AND l.publish_time >= c.next_publish_time
      AND l.publish_time >= %(retained_since)s
    ORDER BY l.publish_time, l.seq
    LIMIT %(max_messages)s
) AS m
WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
ORDER BY m.publish_time, m.seq
