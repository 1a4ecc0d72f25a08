-- Returns fresh messages of subscriptions that receive every message, one row for each batch.  A place is the
-- position of the cursor of a subscription in the log.
--
-- `first_seq` and `count` describe the messages of the batch from the cursor on; the last batch may have more
-- messages than `limits` allows.  The messages of a batch are numbered below the LIMIT, so that it counts
-- messages.  Both conditions on the cursor are needed: the row comparison provides the order and the early stop,
-- the plain one lets PostgreSQL prune partitions at run time.
-- parameters: shard_id int8, subscription_ids int8[], sinces timestamptz[], limits int8[]
-- columns: place, publish_time, batch, first_seq, count, size, expires_at
SELECT p.place, b.publish_time, b.last_seq AS batch, b.last_seq - b.count + b.ordinal AS first_seq,
       b.count - b.ordinal + 1 AS count, b.size * (b.count - b.ordinal + 1) / b.count AS size,
       b.expires_at
FROM unnest(%(subscription_ids)s::int8[], %(sinces)s::timestamptz[], %(limits)s::int8[])
    WITH ORDINALITY AS p (subscription_id, since, max_messages, place)
JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = p.subscription_id
CROSS JOIN LATERAL (
    SELECT l.publish_time, l.last_seq, l.count::int8 AS count, l.size::int8 AS size, l.expires_at,
           generate_series(greatest(1, c.next_seq - l.last_seq + l.count), l.count) AS ordinal
    FROM message_batches AS l
    WHERE l.shard_id = %(shard_id)s
      AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
      AND l.publish_time >= c.next_publish_time
      AND l.publish_time >= p.since
    ORDER BY l.publish_time, l.last_seq
    LIMIT p.max_messages
) AS b
WHERE b.ordinal = greatest(1, c.next_seq - b.last_seq + b.count)
ORDER BY p.place, b.publish_time, b.last_seq
