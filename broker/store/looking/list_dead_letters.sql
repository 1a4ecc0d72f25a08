-- What one subscription has given up in one shard, by where it was there, from behind a dead letter on; with the message
-- as it lies in the dead-letter topic, if it does still.  A message beyond the byte budget comes without its data.
-- parameters: shard_id int8, subscription_id int8, after_seq int8, after_letter_shard int8, after_letter_seq int8,
--     filter_path jsonpath, body_path jsonpath, max_letters int8, max_bytes int8
-- columns: letter_shard, letter_seq, publish_time, seq, source_publish_time, delivery_attempts, reason, ordering_key,
--     attributes, data, matches
SELECT letter_shard, letter_seq, publish_time, seq, source_publish_time, delivery_attempts, reason, ordering_key,
       attributes, CASE WHEN coalesce(preceding_bytes, 0) < %(max_bytes)s THEN data END AS data, matches
FROM (
    SELECT d.letter_shard, d.letter_seq, d.publish_time, d.seq, d.source_publish_time, d.delivery_attempts, d.reason,
           m.ordering_key, m.attributes::text AS attributes, m.data, m.matches,
           sum(m.size) FILTER (WHERE m.matches) OVER (
               ORDER BY d.seq, d.letter_shard, d.letter_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT shard_id AS letter_shard, seq AS letter_seq, publish_time, source_seq AS seq, source_publish_time,
               delivery_attempts, reason
        FROM dead_letters
        WHERE source_shard_id = %(shard_id)s
          AND source_seq >= %(after_seq)s
          AND (source_seq, shard_id, seq) > (%(after_seq)s, %(after_letter_shard)s, %(after_letter_seq)s)
          AND subscription_id = %(subscription_id)s
        ORDER BY source_seq, shard_id, seq
        LIMIT %(max_letters)s
    ) AS d
    LEFT JOIN LATERAL (
        SELECT l.ordering_key, l.attributes, l.data, l.size,
               (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
               AND (%(body_path)s::jsonpath IS NULL OR body_matches(l.attributes, l.body, %(body_path)s::jsonpath))
                   AS matches
        FROM (
            (
                SELECT * FROM messages AS f
                WHERE f.shard_id = d.letter_shard AND f.publish_time = d.publish_time
                  AND f.last_seq >= d.letter_seq AND f.last_seq < d.letter_seq + 1000
                  AND f.seq = d.letter_seq
            )
            UNION ALL
            (
                SELECT * FROM straggler_messages AS f
                WHERE f.shard_id = d.letter_shard AND f.publish_time = d.publish_time
                  AND f.last_seq >= d.letter_seq AND f.last_seq < d.letter_seq + 1000
                  AND f.seq = d.letter_seq
            )
        ) AS l
        LIMIT 1
    ) AS m ON true
) AS counted
ORDER BY seq, letter_shard, letter_seq
