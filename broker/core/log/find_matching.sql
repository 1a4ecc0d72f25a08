-- Scans `max_scanned` messages of a shard from a position on, before a time, in the log and among the stragglers.
-- Returns those that match a filter, and the last one scanned whether it matches or not.
-- parameters: shard_id int8, after_publish_time timestamptz, after_seq int8, until timestamptz, filter_path jsonpath,
--     body_path jsonpath, max_scanned int8, max_matched int8
-- columns: seq, publish_time, ordering_key, expires_at, matches
SELECT c.seq, c.publish_time, c.ordering_key, c.expires_at, c.matches
FROM (
    SELECT l.seq, l.publish_time, l.ordering_key, l.expires_at,
           (%(filter_path)s::jsonpath IS NULL OR coalesce(l.attributes @@ %(filter_path)s::jsonpath, false))
           AND (%(body_path)s::jsonpath IS NULL OR coalesce(
               message_matches(l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath), false
           )) AS matches,
           lead(l.seq) OVER (ORDER BY l.publish_time, l.seq) IS NULL AS is_last
    FROM (
        (
            SELECT m.seq, m.publish_time, m.ordering_key, m.expires_at, m.attributes, m.body
            FROM straggler_messages AS m
            WHERE m.shard_id = %(shard_id)s
              AND (m.publish_time, m.last_seq) > (%(after_publish_time)s, %(after_seq)s)
              AND m.publish_time >= %(after_publish_time)s
              AND m.publish_time < %(until)s
              AND m.seq > %(after_seq)s
            ORDER BY m.publish_time, m.last_seq, m.seq
            LIMIT %(max_scanned)s
        )
        UNION ALL
        (
            SELECT m.seq, m.publish_time, m.ordering_key, m.expires_at, m.attributes, m.body
            FROM messages AS m
            WHERE m.shard_id = %(shard_id)s
              AND (m.publish_time, m.last_seq) > (%(after_publish_time)s, %(after_seq)s)
              AND m.publish_time >= %(after_publish_time)s
              AND m.publish_time < %(until)s
              AND m.seq > %(after_seq)s
            ORDER BY m.publish_time, m.last_seq, m.seq
            LIMIT %(max_scanned)s
        )
        ORDER BY publish_time, seq
        LIMIT %(max_scanned)s
    ) AS l
) AS c
WHERE c.matches OR c.is_last
ORDER BY c.publish_time, c.seq
LIMIT %(max_matched)s
