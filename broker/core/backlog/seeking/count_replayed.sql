-- Counts the messages that a seek has made deliverable again in a shard, as the transaction of the seek sees them.
--
-- * `outstanding`: messages in rows of delivery attempts, which precede the cursor.
-- * `waiting`: messages before the cursor that wait for their ordering key; at most `max_scanned`.
-- * `scanned`, `matching`: of the messages between the cursor and its previous position, how many were compared
--   with the filter (at most `max_compared`), and how many match it.  Without a filter none are scanned, because
--   sequences are dense.
SELECT
    (
        SELECT coalesce(sum(CASE
            WHEN d.ordering_key IS NULL THEN bit_count(d.open)
            ELSE (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(unsettled(d.seqs, d.open)) AS r)
        END), 0)::int8
        FROM delivery_attempts AS d
        WHERE d.shard_id = %(shard_id)s
          AND d.subscription_id = %(subscription_id)s
          AND (d.redriven OR d.last_publish_time >= %(retained_since)s)
    ) AS outstanding,
    (
        SELECT count(*)
        FROM (
            SELECT 1 AS one
            FROM delivery_attempts AS d
            JOIN cursors AS c USING (shard_id, subscription_id)
            CROSS JOIN LATERAL (
                SELECT 1 AS one
                FROM messages AS m
                WHERE m.shard_id = d.shard_id
                  AND m.ordering_key = d.ordering_key
                  AND m.publish_time >= d.first_publish_time
                  AND (d.redriven OR m.publish_time >= %(retained_since)s)
                  AND m.publish_time <= c.next_publish_time
                  AND (m.publish_time, m.seq) < (c.next_publish_time, c.next_seq)
                  AND m.seq <@ d.waiting
                LIMIT %(max_scanned)s
            ) AS m
            WHERE d.shard_id = %(shard_id)s
              AND d.subscription_id = %(subscription_id)s
              AND d.ordering_key IS NOT NULL
            LIMIT %(max_scanned)s
        ) AS waiting
    ) AS waiting,
    scan.scanned, scan.matching
FROM (
    SELECT count(*) AS scanned, count(*) FILTER (WHERE m.matches) AS matching
    FROM (
        SELECT l.attributes @@ %(filter_path)s::jsonpath
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
               ))
                   AS matches
        FROM messages AS l
        WHERE %(filter_path)s::jsonpath IS NOT NULL
          AND l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (%(from_publish_time)s, %(from_seq)s)
          AND l.publish_time >= %(from_publish_time)s
          AND l.publish_time <= %(until_publish_time)s
          AND l.seq >= %(from_seq)s
          AND l.seq < %(until_seq)s
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_compared)s
    ) AS m
) AS scan
