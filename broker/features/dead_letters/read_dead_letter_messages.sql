-- Returns the messages of dead letters that still exist in their topic.  The data is cut after `preview_bytes`;
-- bytes that are read and cut off count a tenth.  A message beyond the byte budget comes without data.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], max_bytes int8, preview_bytes int8
-- columns: shard_id, seq, ordering_key, attributes, data, data_size
SELECT shard_id, seq, ordering_key, attributes::text AS attributes,
       CASE
           WHEN coalesce(preceding_bytes, 0) >= %(max_bytes)s THEN NULL
           WHEN %(preview_bytes)s = 0 THEN ''
           ELSE substr(data_array[1], 1, %(preview_bytes)s::int4)
       END AS data,
       data_size
FROM (
    SELECT w.shard_id, w.seq, m.ordering_key, m.attributes, m.data_array, m.data_size,
           sum(m.size - m.data_size + least(m.data_size, %(preview_bytes)s) + CASE
               WHEN %(preview_bytes)s = 0 THEN 0
               ELSE greatest(m.data_size - %(preview_bytes)s, 0) / 10
           END) OVER (
               ORDER BY w.ordinal ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
        WITH ORDINALITY AS w (shard_id, publish_time, seq, ordinal)
    CROSS JOIN LATERAL (
        SELECT l.ordering_key, l.attributes, l.data_array, l.data_size, l.size
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
