-- Returns those of some messages that are in the log, or among the stragglers.
-- parameters: shard_id int8, publish_times timestamptz[], seqs int8[]
-- columns: seq, ordering_key, expires_at
SELECT w.seq, l.ordering_key, l.expires_at
FROM unnest(%(publish_times)s::timestamptz[], %(seqs)s::int8[]) AS w (publish_time, seq)
CROSS JOIN LATERAL (
    SELECT b.ordering_key, b.expires_at
    FROM message_batches AS b
    WHERE b.shard_id = %(shard_id)s
      AND b.publish_time = w.publish_time
      AND b.last_seq >= w.seq
      AND b.last_seq < w.seq + 1000
      AND b.last_seq - b.count < w.seq
    UNION ALL
    SELECT b.ordering_key, b.expires_at
    FROM straggler_batches AS b
    WHERE b.shard_id = %(shard_id)s
      AND b.publish_time = w.publish_time
      AND b.last_seq >= w.seq
      AND b.last_seq < w.seq + 1000
      AND b.last_seq - b.count < w.seq
    LIMIT 1
) AS l
