-- Messages from the cursor on, a row a batch: `seq` is that of the first one wanted, the `ordinal`-th of its batch.
-- Both conditions on the cursor are needed: the row comparison gives the order and the early stop, the plain one lets
-- PostgreSQL prune partitions while it runs.  The numbering of the messages of a batch below the limit makes it count
-- messages; the last batch may hold more than are wanted.
-- Batches larger than `max_size` a message come without their data: if none is, what comes fits the byte budget, and
-- nothing need be added up.
-- parameters: shard_id int8, subscription_id int8, retained_since timestamptz, max_messages int8,
--     max_size int8
SELECT b.last_seq - b.count + b.ordinal AS seq, b.publish_time, b.ordering_key, b.attributes::text[] AS attributes,
       CASE WHEN b.size <= %(max_size)s * b.count THEN b.data END AS data, b.ordinal, b.size
FROM cursors AS c
CROSS JOIN LATERAL (
    SELECT l.*, generate_series(greatest(1, c.next_seq - l.last_seq + l.count), l.count) AS ordinal
    FROM message_batches AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
      AND l.publish_time >= c.next_publish_time
      AND l.publish_time >= %(retained_since)s
    ORDER BY l.publish_time, l.last_seq
    LIMIT %(max_messages)s
) AS b
WHERE c.shard_id = %(shard_id)s
  AND c.subscription_id = %(subscription_id)s
  AND b.ordinal = greatest(1, c.next_seq - b.last_seq + b.count)
ORDER BY b.publish_time, b.last_seq
