-- Returns the bytes that were published to shards after a position in each, by spans of ten minutes, numbered from
-- 1970 on; at most `limit` batches of each shard are read.  It reads the sizes of batches, not their bodies.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], limit int8
-- columns: shard_id, span, size, batches, publish_time, seq
SELECT b.shard_id, b.span, sum(b.size)::int8 AS size, count(*) AS batches,
       max(b.publish_time) AS publish_time, max(b.last_seq) AS seq
FROM (
    SELECT p.shard_id, l.size, l.publish_time, l.last_seq,
           floor(extract(epoch FROM l.publish_time) / 600)::int8 AS span
    FROM unnest(%(shard_ids)s, %(publish_times)s, %(seqs)s) AS p (shard_id, publish_time, seq)
    CROSS JOIN LATERAL (
        SELECT m.size, m.publish_time, m.last_seq
        FROM message_batches AS m
        WHERE m.shard_id = p.shard_id
          AND (m.publish_time, m.last_seq) > (p.publish_time, p.seq)
          AND m.publish_time >= p.publish_time
        ORDER BY m.publish_time, m.last_seq
        LIMIT %(limit)s
    ) AS l
) AS b
GROUP BY b.shard_id, b.span
