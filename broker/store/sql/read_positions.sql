-- Where a subscription stands in each shard of its topic (B3).  One statement, one moment.  With a filter, `matching`
-- of the first `looked_at` messages that were not claimed yet match it (A3).
SELECT c.shard_id, c.next_publish_time, c.next_seq, h.head,
       greatest(h.head - c.next_seq + 1, 0) AS unclaimed,
       (
           SELECT coalesce(sum(CASE
               WHEN d.ordering_key IS NULL THEN bit_count(d.open)
               ELSE (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(unsettled(d.seqs, d.open)) AS r) + (
                   SELECT count(*)
                   FROM messages AS m
                   WHERE m.shard_id = d.shard_id
                     AND m.ordering_key = d.ordering_key
                     AND m.publish_time >= d.first_publish_time
                     AND m.publish_time <= c.next_publish_time
                     AND (m.publish_time, m.seq) < (c.next_publish_time, c.next_seq)
                     AND m.seq <@ d.waiting
               )
           END), 0)::int8
           FROM delivery_attempts AS d
           WHERE d.shard_id = c.shard_id AND d.subscription_id = c.subscription_id
       ) AS outstanding,
       looked.looked_at, looked.matching
FROM cursors AS c
JOIN shards AS h USING (shard_id)
LEFT JOIN LATERAL (
    SELECT count(*) AS looked_at, count(*) FILTER (WHERE m.matches) AS matching
    FROM (
        SELECT l.attributes @@ %(filter_path)s::jsonpath AS matches
        FROM messages AS l
        WHERE l.shard_id = c.shard_id
          AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
          AND l.seq >= c.next_seq
          AND l.publish_time >= c.next_publish_time
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_looked_at)s
    ) AS m
) AS looked ON %(filter_path)s::jsonpath IS NOT NULL
WHERE c.subscription_id = %(subscription_id)s
ORDER BY c.shard_id
