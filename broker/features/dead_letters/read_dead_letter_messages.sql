-- Dead letters as they lie in the topic that they went to, those that do still.  One beyond the byte budget comes
-- without its data.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], max_bytes int8
-- columns: shard_id, seq, ordering_key, attributes, data
SELECT shard_id, seq, ordering_key, attributes::text AS attributes,
       CASE WHEN coalesce(preceding_bytes, 0) < %(max_bytes)s THEN data END AS data
FROM (
    SELECT w.shard_id, w.seq, m.ordering_key, m.attributes, m.data,
           sum(m.size) OVER (
               ORDER BY w.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
        WITH ORDINALITY AS w (shard_id, publish_time, seq, ordinal)
    CROSS JOIN LATERAL (
        SELECT l.ordering_key, l.attributes, l.data, l.size
        FROM (
            (
                SELECT * FROM messages AS f
                WHERE f.shard_id = w.shard_id AND f.publish_time = w.publish_time
                  AND f.last_seq >= w.seq AND f.last_seq < w.seq + 1000
                  AND f.seq = w.seq
            )
            UNION ALL
            (
                SELECT * FROM straggler_messages AS f
                WHERE f.shard_id = w.shard_id AND f.publish_time = w.publish_time
                  AND f.last_seq >= w.seq AND f.last_seq < w.seq + 1000
                  AND f.seq = w.seq
            )
        ) AS l
        LIMIT 1
    ) AS m
) AS counted
