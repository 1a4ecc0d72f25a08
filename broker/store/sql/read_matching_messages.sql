-- As read_fresh_messages, for a subscription with a filter: looks at `max_scanned` messages from the cursor on and
-- returns those that match, and the last one looked at even if it does not (`matches` false): the cursor may move past
-- it.  `looked_at` counts them.  All that looks and counts stands below the join with the cursor, where the order is
-- that of the index: above it PostgreSQL sorts, and reads `max_scanned` messages for the first ten that match.
-- parameters: shard_id int8, subscription_id int8, retained_since timestamptz, max_messages int8, max_bytes
--     int8, filter_path jsonpath, max_scanned int8
SELECT m.seq, m.publish_time, m.ordering_key, m.attributes, m.data, m.matches, m.looked_at
FROM cursors AS c
CROSS JOIN LATERAL (
    SELECT seq, publish_time, last_seq, ordering_key,
           CASE WHEN matches THEN attributes::text END AS attributes,
           CASE WHEN matches THEN data END AS data,
           matches, looked_at
    FROM (
        SELECT s.*,
               row_number() OVER (ORDER BY s.publish_time, s.last_seq) AS looked_at,
               lead(s.seq) OVER (ORDER BY s.publish_time, s.last_seq) IS NULL AS is_last,
               sum(CASE WHEN s.matches THEN s.size ELSE 0 END) OVER (
                   ORDER BY s.publish_time, s.last_seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
               ) AS preceding_bytes
        FROM (
            SELECT l.seq, l.publish_time, l.last_seq, l.ordering_key, l.attributes, l.data, l.size,
                   l.attributes @@ %(filter_path)s::jsonpath AS matches
            FROM messages AS l
            WHERE l.shard_id = %(shard_id)s
              AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
              AND l.seq >= c.next_seq
              AND l.publish_time >= c.next_publish_time
              AND l.publish_time >= %(retained_since)s
            ORDER BY l.publish_time, l.last_seq
            LIMIT %(max_scanned)s
        ) AS s
    ) AS counted
    WHERE (matches OR is_last) AND (preceding_bytes IS NULL OR preceding_bytes < %(max_bytes)s)
    ORDER BY publish_time, last_seq
    LIMIT %(max_messages)s
) AS m
WHERE c.shard_id = %(shard_id)s AND c.subscription_id = %(subscription_id)s
ORDER BY m.publish_time, m.seq
