-- Returns the position of a subscription in each shard of its topic, and its backlog there (B3).  It is one
-- statement, so that all values have the same snapshot.
--
-- With a filter, `matching` of the first `scanned` messages that were not claimed yet match it (A3).
-- `oldest_outstanding` is the publish time of the outstanding message with the lowest sequence; messages that wait
-- for their ordering key may be older.
SELECT c.shard_id, c.next_publish_time, c.next_seq, h.head,
       -- After the last message there may be sequences without one, if a transform of the topic dropped messages.
       CASE WHEN %(filter_path)s::jsonpath IS NULL AND unclaimed.publish_time IS NULL THEN 0
            ELSE greatest(h.head + 1 - greatest(c.next_seq, unclaimed.seq), 0) END AS unclaimed,
       (
           SELECT coalesce(sum(CASE
               WHEN d.ordering_key IS NULL THEN bit_count(d.open)
               ELSE (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(unsettled(d.seqs, d.open)) AS r) + (
                   SELECT count(*)
                   FROM messages AS m
                   WHERE m.shard_id = d.shard_id
                     AND m.ordering_key = d.ordering_key
                     AND m.publish_time >= d.first_publish_time
                     AND (d.redriven OR m.publish_time >= %(retained_since)s)
                     AND m.publish_time <= c.next_publish_time
                     AND (m.publish_time, m.seq) < (c.next_publish_time, c.next_seq)
                     AND m.seq <@ d.waiting
               )
           END), 0)::int8
           FROM delivery_attempts AS d
           WHERE d.shard_id = c.shard_id
             AND d.subscription_id = c.subscription_id
             AND (d.redriven OR d.last_publish_time >= %(retained_since)s)
       ) AS outstanding,
       coalesce(out.publish_time, first_out.first_publish_time) AS oldest_outstanding,
       CASE WHEN %(filter_path)s::jsonpath IS NULL THEN unclaimed.publish_time ELSE scan.oldest END AS oldest_unclaimed,
       scan.scanned, scan.matching
FROM cursors AS c
JOIN shards AS h USING (shard_id)
LEFT JOIN LATERAL (
    SELECT d.first_publish_time, d.last_publish_time, head.seq
    FROM delivery_attempts AS d
    CROSS JOIN LATERAL (
        SELECT CASE position(B'1' IN d.open)
            WHEN 1 THEN lower(d.seqs)
            ELSE nth_sequence(d.seqs, position(B'1' IN d.open))
        END AS seq
    ) AS head
    WHERE d.shard_id = c.shard_id
      AND d.subscription_id = c.subscription_id
      AND (d.redriven OR d.last_publish_time >= %(retained_since)s)
      AND bit_count(d.open) > 0
    ORDER BY head.seq
    LIMIT 1
) AS first_out ON true
LEFT JOIN LATERAL (
    SELECT b.publish_time
    FROM (
        (
            SELECT publish_time FROM message_batches
            WHERE shard_id = c.shard_id
              AND publish_time >= first_out.first_publish_time
              AND publish_time <= first_out.last_publish_time
              AND (publish_time, last_seq) >= (first_out.first_publish_time, first_out.seq)
              AND last_seq >= first_out.seq
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
        UNION ALL
        (
            SELECT publish_time FROM straggler_batches
            WHERE shard_id = c.shard_id
              AND (publish_time, last_seq) >= (first_out.first_publish_time, first_out.seq)
              AND last_seq >= first_out.seq
              AND last_seq - count < first_out.seq
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
    ) AS b
    ORDER BY b.publish_time
    LIMIT 1
) AS out ON true
LEFT JOIN LATERAL (
    SELECT b.publish_time, b.last_seq - b.count + 1 AS seq
    FROM message_batches AS b
    WHERE b.shard_id = c.shard_id
      AND (b.publish_time, b.last_seq) >= (c.next_publish_time, c.next_seq)
      AND b.publish_time >= greatest(c.next_publish_time, %(retained_since)s)
    ORDER BY b.publish_time, b.last_seq
    LIMIT 1
) AS unclaimed ON %(filter_path)s::jsonpath IS NULL
LEFT JOIN LATERAL (
    SELECT count(*) AS scanned, count(*) FILTER (WHERE m.matches) AS matching,
           min(m.publish_time) FILTER (WHERE m.matches) AS oldest
    FROM (
        SELECT l.publish_time,
               l.attributes @@ %(filter_path)s::jsonpath
               AND (%(body_path)s::jsonpath IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, %(body_path)s::jsonpath
               ))
                   AS matches
        FROM messages AS l
        WHERE l.shard_id = c.shard_id
          AND (l.publish_time, l.last_seq) >= (c.next_publish_time, c.next_seq)
          AND l.seq >= c.next_seq
          AND l.publish_time >= greatest(c.next_publish_time, %(retained_since)s)
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_scanned)s
    ) AS m
) AS scan ON %(filter_path)s::jsonpath IS NOT NULL
WHERE c.subscription_id = %(subscription_id)s
ORDER BY c.shard_id
