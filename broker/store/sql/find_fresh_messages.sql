-- As read_matching_messages, for several places in the log at once, each with a filter (null: everything matches) and
-- limits of its own, and without the bodies.  `is_end`: there is nothing behind this message.
-- `overhead` makes `size` what StoredMessage.size will be.
-- parameters: shard_id int8, next_publish_times timestamptz[], next_seqs int8[], sinces timestamptz[],
--     filter_paths text[], max_messages int8[], max_bytes int8[], max_scanned int8[], overhead int8
WITH places AS MATERIALIZED (
    SELECT p.number, p.next_publish_time, p.next_seq, p.since, p.filter_path::jsonpath AS filter_path,
           p.max_messages, p.max_bytes, p.max_scanned
    FROM unnest(
        %(next_publish_times)s::timestamptz[], %(next_seqs)s::int8[], %(sinces)s::timestamptz[],
        %(filter_paths)s::text[], %(max_messages)s::int8[], %(max_bytes)s::int8[], %(max_scanned)s::int8[]
    ) WITH ORDINALITY AS p (
        next_publish_time, next_seq, since, filter_path, max_messages, max_bytes, max_scanned, number
    )
)
SELECT p.number, m.seq, m.publish_time, m.size, m.matches, m.is_end
FROM places AS p
CROSS JOIN LATERAL (
    SELECT seq, publish_time, last_seq, size, matches, is_last AND looked_at < p.max_scanned AS is_end
    FROM (
        SELECT s.*,
               row_number() OVER (ORDER BY s.publish_time, s.last_seq) AS looked_at,
               lead(s.seq) OVER (ORDER BY s.publish_time, s.last_seq) IS NULL AS is_last,
               sum(CASE WHEN s.matches THEN s.size ELSE 0 END) OVER (
                   ORDER BY s.publish_time, s.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS preceding_bytes
        FROM (
            SELECT l.seq, l.publish_time, l.last_seq, l.size + %(overhead)s AS size,
                   p.filter_path IS NULL OR l.attributes @@ p.filter_path AS matches
            FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (p.next_publish_time, p.next_seq)
              AND l.seq >= p.next_seq
              AND l.publish_time >= p.since
            ORDER BY l.publish_time, l.last_seq
            LIMIT p.max_scanned
        ) AS s
    ) AS counted
    WHERE (matches OR is_last) AND (preceding_bytes IS NULL OR preceding_bytes < p.max_bytes)
    ORDER BY publish_time, last_seq
    LIMIT p.max_messages
) AS m
ORDER BY p.number, m.publish_time, m.seq
