-- Returns messages that were published after a given one, in the order of the log.  It scans `max_scanned`
-- messages, and returns those that match and the last one scanned, even if it does not match (`matches` is false).
-- Messages beyond `max_bytes` are returned without their data.  The data is truncated to `preview_bytes`; bytes
-- that are read and cut off count a tenth.
-- parameters: shard_id int8, publish_time timestamptz, seq int8, filter_path jsonpath, body_path jsonpath,
--     max_scanned int8, max_bytes int8, preview_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, id_seq, data_size, matches
SELECT seq, publish_time, ordering_key, attributes::text AS attributes,
       CASE
           WHEN NOT matches OR coalesce(preceding_bytes, 0) >= %(max_bytes)s THEN NULL
           WHEN %(preview_bytes)s = 0 THEN ''
           ELSE substr(data_array[1], 1, %(preview_bytes)s::int4)
       END AS data,
       id_seq, data_size, matches
FROM (
    SELECT m.*,
           lead(m.seq) OVER (ORDER BY m.publish_time, m.last_seq) IS NULL AS is_last,
           sum(CASE
               WHEN NOT m.matches THEN 0
               ELSE m.size - m.data_size + least(m.data_size, %(preview_bytes)s) + CASE
                   WHEN %(preview_bytes)s = 0 THEN 0
                   ELSE greatest(m.data_size - %(preview_bytes)s, 0) / 10
               END
           END) OVER (
               ORDER BY m.publish_time, m.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT l.seq, l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data_array, l.data_size, l.size, l.id_seq,
               (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
               ))
                   AS matches
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (%(publish_time)s, %(seq)s + 1)
          AND l.seq > %(seq)s
          AND l.publish_time >= %(publish_time)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_scanned)s
    ) AS m
) AS counted
WHERE matches OR is_last
ORDER BY publish_time, seq
