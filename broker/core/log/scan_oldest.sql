-- Scans `max_scanned` messages of a shard from a position on, oldest first, up to a time.  Returns those that match
-- a filter and an ordering key, and the last one scanned, even if it does not match.  It is scan_newest.sql in the
-- opposite direction, and always returns the data.
-- parameters: shard_id int8, after_publish_time timestamptz, after_seq int8, until timestamptz, filter_path jsonpath,
--     body_path jsonpath, ordering_key text, max_scanned int8, max_matched int8, max_bytes int8
SELECT seq, publish_time, ordering_key,
       CASE WHEN matches THEN attributes::text END AS attributes,
       CASE WHEN matches THEN body[1] END AS data, id_seq,
       matches, scanned, is_last
FROM (
    SELECT m.*,
           row_number() OVER (ORDER BY m.publish_time, m.last_seq) AS scanned,
           lead(m.seq) OVER (ORDER BY m.publish_time, m.last_seq) IS NULL AS is_last,
           sum(CASE
               WHEN NOT m.matches THEN 0
               WHEN m.count = 1 THEN m.size
               ELSE octet_length(m.attributes::text) + coalesce(octet_length(m.body[1]), 0)
           END) OVER (
               ORDER BY m.publish_time, m.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT m.seq, l.publish_time, l.last_seq, l.ordering_key, m.attributes, l.count, l.size,
               l.id_seqs[m.ordinal] AS id_seq,
               CASE
                   WHEN l.count = 1 THEN l.data  -- may be large, so it is read only if it is returned
                   ELSE ARRAY[l.data[m.ordinal]]
               END AS body,
               (%(filter_path)s::jsonpath IS NULL OR m.attributes @@ %(filter_path)s::jsonpath)
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   m.attributes,
                   CASE WHEN l.count > 1 OR l.size <= 2000000 THEN l.data[m.ordinal] END,  -- as in `messages`
                   l.publish_time,
                   %(body_path)s::jsonpath
               ))
               AND (%(ordering_key)s = '' OR l.ordering_key = %(ordering_key)s) AS matches
        FROM message_batches AS l
        CROSS JOIN LATERAL (
            SELECT l.last_seq - l.count + ordinal AS seq, ordinal, 
                   CASE
                       WHEN l.shared_attributes IS NULL THEN coalesce(l.attributes[ordinal], '{}')
                       ELSE coalesce(l.attributes[ordinal], '{}') || l.shared_attributes
                   END AS attributes
            FROM generate_series(1, l.count) AS ordinal
        ) AS m
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) > (%(after_publish_time)s, %(after_seq)s)
          AND m.seq > %(after_seq)s
          AND l.publish_time >= %(after_publish_time)s
          AND l.publish_time < %(until)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_scanned)s
    ) AS m
) AS counted
WHERE (matches OR is_last) AND (preceding_bytes IS NULL OR preceding_bytes < %(max_bytes)s)
ORDER BY publish_time, seq
LIMIT %(max_matched)s
