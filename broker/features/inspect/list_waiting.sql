-- What was never handed out, from the cursor on, or from behind a message that is further: scans `max_scanned` messages
-- and returns those that match, and the last one scanned even if it does not (`matches` false).  `held_by`: the first
-- message that is out of its ordering key.  A message beyond the byte budget comes without its data.
-- parameters: shard_id int8, subscription_id int8, publish_time timestamptz, seq int8, retained_since timestamptz,
--     filter_path jsonpath, body_path jsonpath, ordered bool, now timestamptz, max_scanned int8,
--     max_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, id_seq, matches, scanned, held_by
WITH start AS MATERIALIZED (
    SELECT CASE WHEN c.next_seq > %(seq)s THEN c.next_publish_time ELSE %(publish_time)s END AS publish_time,
           greatest(c.next_seq, %(seq)s + 1) AS seq
    FROM cursors AS c
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
)
SELECT seq, publish_time, ordering_key, attributes::text AS attributes,
       CASE WHEN matches AND coalesce(preceding_bytes, 0) < %(max_bytes)s THEN data END AS data,
       id_seq, matches, scanned,
       CASE WHEN %(ordered)s AND ordering_key IS NOT NULL THEN (
           SELECT CASE position(B'1' IN a.open)
               WHEN 0 THEN NULL
               WHEN 1 THEN lower(a.seqs)
               ELSE nth_sequence(a.seqs, position(B'1' IN a.open))
           END
           FROM delivery_attempts AS a
           WHERE a.shard_id = %(shard_id)s
             AND a.subscription_id = %(subscription_id)s
             AND a.ordering_key = counted.ordering_key
       ) END AS held_by
FROM (
    SELECT m.*,
           row_number() OVER (ORDER BY m.publish_time, m.last_seq) AS scanned,
           lead(m.seq) OVER (ORDER BY m.publish_time, m.last_seq) IS NULL AS is_last,
           sum(CASE WHEN m.matches THEN m.size ELSE 0 END) OVER (
               ORDER BY m.publish_time, m.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
           ) AS preceding_bytes
    FROM (
        SELECT l.seq, l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data, l.size, l.id_seq,
               (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
               ))
               AND (l.expires_at IS NULL OR l.expires_at > %(now)s) AS matches
        FROM start AS s
        CROSS JOIN LATERAL (
            SELECT * FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (s.publish_time, s.seq)
              AND l.seq >= s.seq
              AND l.publish_time >= s.publish_time
              AND l.publish_time >= %(retained_since)s
            ORDER BY l.publish_time, l.last_seq
            LIMIT %(max_scanned)s
        ) AS l
    ) AS m
) AS counted
WHERE matches OR is_last
ORDER BY publish_time, seq
