-- Returns messages that were never delivered, from the cursor on, or after a message beyond it.  Scans
-- `max_scanned` messages; returns those that match, and the last one scanned even if it does not (`matches` is
-- false).  `held_by`: the first outstanding message of its ordering key.  The data is cut after `preview_bytes`.
-- `has_text`: the data contains `contains` (empty: always true); otherwise the data is left out.  A message beyond
-- the byte budget comes without attributes and data (`fits` is false); bytes that are read and cut off count a
-- tenth.
-- parameters: shard_id int8, subscription_id int8, publish_time timestamptz, seq int8, retained_since timestamptz,
--     filter_path jsonpath, body_path jsonpath, contains bytea, ordered bool, now timestamptz, max_scanned int8,
--     max_bytes int8, preview_bytes int8
-- columns: seq, publish_time, ordering_key, attributes, data, data_size, id_seq, matches, fits, has_text, scanned,
--     held_by
WITH start AS MATERIALIZED (
    SELECT CASE WHEN c.next_seq > %(seq)s THEN c.next_publish_time ELSE %(publish_time)s END AS publish_time,
           greatest(c.next_seq, %(seq)s + 1) AS seq
    FROM cursors AS c
    WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
)
SELECT seq, publish_time, ordering_key, CASE WHEN fits THEN attributes::text END AS attributes,
       CASE
           WHEN NOT has_text THEN NULL
           WHEN %(preview_bytes)s = 0 THEN ''
           ELSE substr(data_array[1], 1, %(preview_bytes)s::int4)
       END AS data,
       data_size, id_seq, matches, fits, has_text, scanned,
       CASE WHEN %(ordered)s AND ordering_key IS NOT NULL THEN (
           SELECT CASE position(B'1' IN a.open)
               WHEN 0 THEN NULL
               WHEN 1 THEN lower(a.seqs)
               ELSE nth_sequence(a.seqs, position(B'1' IN a.open))
           END
           FROM delivery_attempts AS a
           WHERE a.shard_id = %(shard_id)s
             AND a.subscription_id = %(subscription_id)s
             AND a.ordering_key = searched.ordering_key
       ) END AS held_by
FROM (
    SELECT counted.*,
           matches AND fits
               AND (%(contains)s::bytea = '' OR position(%(contains)s::bytea IN data_array[1]) > 0) AS has_text
    FROM (
        SELECT m.*,
               row_number() OVER (ORDER BY m.publish_time, m.last_seq) AS scanned,
               lead(m.seq) OVER (ORDER BY m.publish_time, m.last_seq) IS NULL AS is_last,
               coalesce(sum(CASE
                   WHEN NOT m.matches THEN 0
                   ELSE m.size - m.data_size + least(m.data_size, %(preview_bytes)s) + CASE
                       WHEN %(preview_bytes)s = 0 AND %(contains)s::bytea = '' THEN 0
                       ELSE greatest(m.data_size - %(preview_bytes)s, 0) / 10
                   END
               END) OVER (
                   ORDER BY m.publish_time, m.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ), 0) < %(max_bytes)s AS fits
        FROM (
            SELECT l.seq, l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data_array, l.data_size, l.size,
                   l.id_seq,
                   (%(filter_path)s::jsonpath IS NULL OR l.attributes @@ %(filter_path)s::jsonpath)
                   AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                       l.attributes,
                       CASE WHEN l.size <= 2000000 THEN l.data_array[1] END,  -- `body`, which would be read at once
                       l.publish_time,
                       %(body_path)s::jsonpath
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
) AS searched
WHERE matches OR is_last
ORDER BY publish_time, seq
