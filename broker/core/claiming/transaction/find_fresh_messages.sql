-- Returns fresh messages of subscriptions with a filter or ordering, one row for each message.  It scans
-- `max_scanned` messages at each place, and returns those that match and the last one scanned, even if it does not
-- match (`matches` is false): the cursor may move past it.  `is_end`: the log ends there.  `size` is that of
-- StoredMessage.size, with `overhead`.
--
-- On ordered subscriptions a message whose key has a row waits for that row, and the cursor may move past it.  Rows
-- of keys are created and deleted only under the lock of the cursor.  The row of a key is looked up by a scalar
-- subquery, so that this is an index lookup however many keys there are.
--
-- Everything is computed below the join with the cursor, where rows come in the order of the index.  Above it
-- PostgreSQL would sort, and read `max_scanned` messages to find the first ten that match.
-- parameters: shard_id int8, subscription_ids int8[], sinces timestamptz[], filter_paths text[], ordered bool[],
--     limits int8[], max_bytes int8[], max_scanned int8[], overhead int8
-- columns: place, seq, publish_time, batch, size, ordering_key, matches, is_end, expires_at
WITH places AS MATERIALIZED (
    SELECT p.place, p.subscription_id, c.next_publish_time, c.next_seq, p.since,
           p.filter_path::jsonpath AS filter_path, p.ordered, p.max_messages, p.max_bytes, p.max_scanned
    FROM unnest(
        %(subscription_ids)s::int8[], %(sinces)s::timestamptz[], %(filter_paths)s::text[], %(ordered)s::bool[],
        %(limits)s::int8[], %(max_bytes)s::int8[], %(max_scanned)s::int8[]
    ) WITH ORDINALITY AS p (subscription_id, since, filter_path, ordered, max_messages, max_bytes, max_scanned, place)
    JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = p.subscription_id
)
SELECT p.place, m.seq, m.publish_time, m.last_seq AS batch, m.size, m.ordering_key, m.matches, m.is_end, m.expires_at
FROM places AS p
CROSS JOIN LATERAL (
    SELECT seq, publish_time, last_seq, size, ordering_key, matches, expires_at,
           is_last AND scanned < p.max_scanned AS is_end
    FROM (
        SELECT s.*,
               row_number() OVER (ORDER BY s.publish_time, s.last_seq) AS scanned,
               lead(s.seq) OVER (ORDER BY s.publish_time, s.last_seq) IS NULL AS is_last,
               sum(CASE WHEN s.matches THEN s.size ELSE 0 END) OVER (
                   ORDER BY s.publish_time, s.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS preceding_bytes
        FROM (
            SELECT l.seq, l.publish_time, l.last_seq, l.size + %(overhead)s AS size, l.ordering_key, l.expires_at,
                   (p.filter_path IS NULL OR l.attributes @@ p.filter_path)
                   AND (NOT p.ordered OR l.ordering_key IS NULL OR (
                       SELECT d.attempt_id
                       FROM delivery_attempts AS d
                       WHERE d.shard_id = %(shard_id)s
                         AND d.subscription_id = p.subscription_id
                         AND d.ordering_key = l.ordering_key
                   ) IS NULL) AS matches
            FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (p.next_publish_time, p.next_seq)
              AND l.seq >= p.next_seq
              AND l.publish_time >= p.next_publish_time
              AND l.publish_time >= p.since
            ORDER BY l.publish_time, l.last_seq
            LIMIT p.max_scanned
        ) AS s
    ) AS counted
    WHERE (matches OR is_last) AND (preceding_bytes IS NULL OR preceding_bytes < p.max_bytes)
    ORDER BY publish_time, last_seq
    LIMIT p.max_messages
) AS m
ORDER BY p.place, m.publish_time, m.seq
