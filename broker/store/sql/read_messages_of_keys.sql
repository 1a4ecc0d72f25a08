-- The next messages of keys: those that came back, or those that wait in the log before the cursor.  Each key brings
-- the sequences that it wants and how many of them.  A message beyond the byte budget comes without its data.
-- parameters: shard_id int8, subscription_id int8, ordering_keys text[], first_publish_times timestamptz[],
--     seqs text[], limits int8[], retained_since timestamptz, filter_path jsonpath, max_bytes int8
SELECT number, seq, publish_time, ordering_key, attributes,
       CASE WHEN coalesce(preceding_bytes, 0) < %(max_bytes)s THEN data END AS data
FROM (
    SELECT k.number, m.seq, m.publish_time, m.ordering_key, m.attributes::text AS attributes, m.data,
           sum(m.size) OVER (
               ORDER BY k.number, m.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM cursors AS c
    CROSS JOIN unnest(
        %(ordering_keys)s::text[], %(first_publish_times)s::timestamptz[], %(seqs)s::text[], %(limits)s::int8[]
    ) WITH ORDINALITY AS k (ordering_key, first_publish_time, seqs, max_messages, number)
    CROSS JOIN LATERAL (
        SELECT l.seq, l.publish_time, l.ordering_key, l.attributes, l.data, l.size
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND l.ordering_key = k.ordering_key
          AND (l.publish_time, l.last_seq) >= (k.first_publish_time, lower(k.seqs::int8multirange))
          AND (l.publish_time, l.seq) < (c.next_publish_time, c.next_seq)
          AND l.publish_time >= k.first_publish_time
          AND l.publish_time <= c.next_publish_time
          AND l.publish_time >= %(retained_since)s
          AND l.seq <@ k.seqs::int8multirange
          AND (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
        ORDER BY l.publish_time, l.last_seq
        LIMIT k.max_messages
    ) AS m
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
) AS counted
ORDER BY number, seq
