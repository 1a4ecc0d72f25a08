-- Returns fresh batches at one place as find_fresh_batches.sql does, with bodies: that of the first batch, and
-- those of later ones as long as the batches before them have less than `max_bytes`.
-- parameters: shard_id int8, subscription_id int8, since timestamptz, max_messages int8, max_bytes int8
-- columns: publish_time, batch, first_seq, count, size, ordering_key, attributes, data, shared,
--     id_seqs, expires_at
SELECT f.publish_time, f.batch, f.first_seq, f.count, f.size, f.ordering_key,
       CASE WHEN f.before < %(max_bytes)s THEN f.attributes::text[] END AS attributes,
       CASE WHEN f.before < %(max_bytes)s THEN f.data END AS data,
       f.shared_attributes::text AS shared, f.id_seqs, f.expires_at
FROM (
    SELECT b.publish_time, b.last_seq AS batch, b.last_seq - b.count + b.ordinal AS first_seq,
           b.count - b.ordinal + 1 AS count, b.size * (b.count - b.ordinal + 1) / b.count AS size,
           b.ordering_key, b.attributes, b.data, b.shared_attributes, b.id_seqs, b.expires_at,
           sum(b.size) OVER (ORDER BY b.publish_time, b.last_seq ROWS UNBOUNDED PRECEDING) - b.size AS before
    FROM cursors AS c
    CROSS JOIN LATERAL (
        SELECT l.publish_time, l.last_seq, l.count::int8 AS count, l.size::int8 AS size, l.ordering_key, l.attributes,
               l.data, l.shared_attributes, l.id_seqs, l.expires_at,
               generate_series(greatest(1, c.next_seq - l.last_seq + l.count), l.count) AS ordinal
        FROM message_batches AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
          AND l.publish_time >= c.next_publish_time
          AND l.publish_time >= %(since)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_messages)s
    ) AS b
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
      AND b.ordinal = greatest(1, c.next_seq - b.last_seq + b.count)
) AS f
ORDER BY f.publish_time, f.batch
