-- Returns messages by their positions, in the log or among the stragglers, up to a number of bytes, and one more
-- that is larger.  The others come without their data, and `fits` is false.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], max_bytes int8
-- columns: shard_id, seq, ordering_key, attributes, data, fits
SELECT shard_id, seq, ordering_key, CASE WHEN fits THEN attributes::text END AS attributes,
       CASE WHEN fits THEN data END AS data, fits
FROM (
    SELECT l.*, w.shard_id, w.ordinal,
           coalesce(sum(l.size) OVER (
               ORDER BY w.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ), 0) < %(max_bytes)s AS fits
    FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
        WITH ORDINALITY AS w (shard_id, publish_time, seq, ordinal)
    CROSS JOIN LATERAL (
        SELECT m.seq, m.ordering_key, m.attributes, m.data, m.size
        FROM messages AS m
        WHERE m.shard_id = w.shard_id
          AND m.publish_time = w.publish_time
          AND m.last_seq >= w.seq
          AND m.last_seq < w.seq + 1000
          AND m.seq = w.seq
        UNION ALL
        SELECT m.seq, m.ordering_key, m.attributes, m.data, m.size
        FROM straggler_messages AS m
        WHERE m.shard_id = w.shard_id
          AND m.publish_time = w.publish_time
          AND m.last_seq >= w.seq
          AND m.last_seq < w.seq + 1000
          AND m.seq = w.seq
        LIMIT 1
    ) AS l
) AS found
ORDER BY ordinal
