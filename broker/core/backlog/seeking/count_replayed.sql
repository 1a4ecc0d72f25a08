-- What a seek has made to come again in a shard, as the transaction that sought sees it: `outstanding`, what is out, or
-- waits for its key, before the cursor; `matching` of the `scanned` messages of the log between the cursor and where it
-- stood before (nothing is scanned without a filter: sequences are dense).  The counts stop at `max_scanned`, that of
-- the log at `max_compared`.
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
