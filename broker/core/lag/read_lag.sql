-- Returns the lag of subscriptions in the shards of their topics, one row for each subscription and shard.
-- read_positions.sql returns similar values for one subscription, but the cost of this statement does not grow with
-- the backlog.  For each row it reads at most `max_attempts` delivery attempts and `max_batches` batches that wait
-- for ordering keys, and compares at most `max_scanned` messages with the filter, and `max_newest` of the newest ones.
--
-- * `retained_since`: older messages are not delivered, and not counted.
-- * `holder`: the row of the ordering key with the oldest message that blocks others of its key.
-- * `sought_at`: when the last seek or purge was; `skipped`: how many messages it settled, `sought_by` whom,
--   `purged`: it was a purge.  All rows of one have the same time, and are in the bucket -1 of the journal.
-- * `matched`: the filter matches a message that was delivered or is waiting, or some were acknowledged within a day,
--   or it matches one of the newest messages.  `compared`: how many of these were compared with it; 0 if that
--   was known without them.
-- parameters: subscription_ids int8[], retained_since timestamptz[], filter_paths text[], body_paths text[],
--     ordered bool[], now timestamptz, max_attempts int8, max_batches int8, max_scanned int8, max_newest int8
-- columns: subscription_id, shard_id, head, unclaimed, oldest_unclaimed, scanned, matching, attempts, claimed, outstanding,
--     retrying, highest_attempt, oldest_claimed, held, held_batches, oldest_held, message_size, holder,
--     last_publish_time, sought_at, skipped, sought_by, purged, compared, matched
SELECT p.subscription_id, p.shard_id, p.head,
       CASE WHEN first.publish_time IS NULL THEN 0 ELSE p.head + 1 - greatest(p.next_seq, first.seq) END AS unclaimed,
       CASE WHEN p.filter_path IS NULL THEN first.publish_time ELSE scan.oldest END AS oldest_unclaimed,
       CASE WHEN p.filter_path IS NOT NULL THEN scan.scanned END AS scanned, scan.matching,
       out.attempts, out.claimed, out.outstanding, out.retrying, out.highest_attempt,
       coalesce(oldest.publish_time, out.first_publish_time) AS oldest_claimed,
       coalesce(held.messages, 0)::int8 AS held, coalesce(held.batches, 0) AS held_batches,
       CASE WHEN held.messages > 0 THEN held.oldest END AS oldest_held,
       z.message_size, out.holder::text AS holder,
       CASE WHEN p.head > 0 THEN p.last_publish_time END AS last_publish_time,
       sought.time AS sought_at, coalesce(sought.skipped, 0)::int8 AS skipped, sought.principal AS sought_by,
       coalesce(sought.purged, false) AS purged,
       newest.compared,
       out.attempts > 0 OR scan.matching > 0 OR coalesce(recorded.is_there, false) OR newest.matching > 0 AS matched
-- DISTINCT ON makes PostgreSQL compute these rows once, and not again for each lookup below.  It removes no rows,
-- because its columns are the key of the cursors.
FROM (
    SELECT DISTINCT ON (c.shard_id, c.subscription_id)
           c.shard_id, c.subscription_id, c.next_publish_time, c.next_seq, h.head, h.last_publish_time,
           w.retained_since, w.filter_path::jsonpath AS filter_path, w.body_path::jsonpath AS body_path, w.ordered
    FROM unnest(
        %(subscription_ids)s::int8[], %(retained_since)s::timestamptz[], %(filter_paths)s::text[],
        %(body_paths)s::text[], %(ordered)s::bool[]
    ) AS w (subscription_id, retained_since, filter_path, body_path, ordered)
    JOIN cursors AS c ON c.subscription_id = w.subscription_id
    JOIN shards AS h ON h.shard_id = c.shard_id
) AS p
-- The average size of a message of the shard, by its newest batches.
CROSS JOIN LATERAL (
    SELECT coalesce(sum(b.size)::float8 / sum(b.count), 0) AS message_size
    FROM (
        SELECT size, count FROM message_batches
        WHERE shard_id = p.shard_id AND publish_time <= p.last_publish_time
        ORDER BY publish_time DESC, last_seq DESC
        LIMIT 20
    ) AS b
) AS z
CROSS JOIN LATERAL (
    SELECT count(*) AS attempts, coalesce(sum(d.messages), 0)::int8 AS claimed,
           coalesce(sum(d.within_deadline), 0)::int8 AS outstanding,
           coalesce(sum(d.messages) FILTER (WHERE d.status IN ('nacked', 'exhausted')), 0)::int8 AS retrying,
           max(d.attempt_number) FILTER (WHERE d.messages > 0) AS highest_attempt,
           (array_agg(d.seq ORDER BY d.seq) FILTER (WHERE d.is_open))[1] AS seq,
           (array_agg(d.first_publish_time ORDER BY d.seq) FILTER (WHERE d.is_open))[1] AS first_publish_time,
           (array_agg(d.last_publish_time ORDER BY d.seq) FILTER (WHERE d.is_open))[1] AS last_publish_time,
           (array_agg(d.holder ORDER BY d.seq) FILTER (WHERE d.holder IS NOT NULL))[1] AS holder
    FROM (
        SELECT a.status, a.attempt_number, a.first_publish_time, a.last_publish_time, head.seq,
               head.seq IS NOT NULL AND (a.redriven OR a.last_publish_time >= p.retained_since) AS is_open,
               CASE
                   WHEN NOT (coalesce(a.redriven, false) OR a.last_publish_time >= p.retained_since
                             OR a.status = 'exhausted') THEN within.deadline
                   WHEN a.ordering_key IS NULL THEN bit_count(a.open)
                   ELSE (SELECT coalesce(sum(upper(r) - lower(r)), 0) FROM unnest(unsettled(a.seqs, a.open)) AS r)
               END AS messages,
               within.deadline AS within_deadline,
               CASE WHEN a.ordering_key IS NOT NULL AND head.seq IS NOT NULL THEN jsonb_build_object(
                   'ordering_key', a.ordering_key, 'seq', head.seq, 'attempt_number', a.attempt_number,
                   'status', a.status, 'delivered_at', extract(epoch FROM a.delivered_at)
               ) END AS holder
        FROM delivery_attempts AS a
        CROSS JOIN LATERAL (
            SELECT CASE position(B'1' IN a.open)
                WHEN 0 THEN NULL
                WHEN 1 THEN lower(a.seqs)
                ELSE nth_sequence(a.seqs, position(B'1' IN a.open))
            END AS seq
        ) AS head
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN a.status <> 'delivering' OR a.next_delivery_at <= %(now)s THEN 0
                ELSE bit_count(coalesce(substring(a.open FROM 1 FOR a.out_count), a.open))
            END AS deadline
        ) AS within
        WHERE a.shard_id = p.shard_id AND a.subscription_id = p.subscription_id
        ORDER BY a.attempt_id, a.part
        LIMIT %(max_attempts)s
    ) AS d
) AS out
LEFT JOIN LATERAL (
    SELECT b.publish_time
    FROM (
        (
            SELECT publish_time FROM message_batches
            WHERE shard_id = p.shard_id
              AND publish_time >= out.first_publish_time
              AND publish_time <= out.last_publish_time
              AND (publish_time, last_seq) >= (out.first_publish_time, out.seq)
              AND last_seq >= out.seq
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
        UNION ALL
        (
            SELECT publish_time FROM straggler_batches
            WHERE shard_id = p.shard_id
              AND (publish_time, last_seq) >= (out.first_publish_time, out.seq)
              AND last_seq >= out.seq
              AND last_seq - count < out.seq
            ORDER BY publish_time, last_seq
            LIMIT 1
        )
    ) AS b
    ORDER BY b.publish_time
    LIMIT 1
) AS oldest ON true
LEFT JOIN LATERAL (
    SELECT b.publish_time, b.last_seq - b.count + 1 AS seq
    FROM message_batches AS b
    WHERE b.shard_id = p.shard_id
      AND (b.publish_time, b.last_seq) >= (p.next_publish_time, p.next_seq)
      AND b.publish_time >= greatest(p.next_publish_time, p.retained_since)
    ORDER BY b.publish_time, b.last_seq
    LIMIT 1
) AS first ON true
LEFT JOIN LATERAL (
    SELECT count(*) AS scanned, count(*) FILTER (WHERE m.matches) AS matching,
           min(m.publish_time) FILTER (WHERE m.matches) AS oldest
    FROM (
        SELECT l.publish_time,
               l.attributes @@ p.filter_path
               AND (p.body_path IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, p.body_path
               )) AS matches
        FROM messages AS l
        WHERE p.filter_path IS NOT NULL
          AND l.shard_id = p.shard_id
          AND (l.publish_time, l.last_seq) >= (p.next_publish_time, p.next_seq)
          AND l.seq >= p.next_seq
          AND l.publish_time >= greatest(p.next_publish_time, p.retained_since)
        ORDER BY l.publish_time, l.last_seq
        LIMIT %(max_scanned)s
    ) AS m
) AS scan ON true
LEFT JOIN LATERAL (
    SELECT sum(b.messages) AS messages, count(*) AS batches,
           min(b.publish_time) FILTER (WHERE b.messages > 0) AS oldest
    FROM (
        SELECT l.publish_time, (
            SELECT coalesce(sum(upper(r) - lower(r)), 0)
            FROM unnest(a.waiting * int8multirange(
                int8range(l.last_seq - l.count, least(l.last_seq, p.next_seq - 1), '(]')
            )) AS r
        ) AS messages
        FROM delivery_attempts AS a
        JOIN message_batches AS l
          ON l.shard_id = a.shard_id
         AND l.ordering_key = a.ordering_key
         AND l.publish_time >= a.first_publish_time
         AND (a.redriven OR l.publish_time >= p.retained_since)
         AND l.publish_time <= p.next_publish_time
         AND l.last_seq >= lower(a.waiting)
         AND l.last_seq - l.count < p.next_seq
        WHERE p.ordered
          AND a.shard_id = p.shard_id
          AND a.subscription_id = p.subscription_id
          AND a.ordering_key IS NOT NULL AND NOT isempty(a.waiting)
        LIMIT %(max_batches)s
    ) AS b
) AS held ON true
LEFT JOIN LATERAL (
    SELECT time
    FROM delivery_journal
    WHERE shard_id = p.shard_id AND subscription_id = p.subscription_id AND bucket = -1
    ORDER BY number DESC
    LIMIT 1
) AS last_sought ON true
LEFT JOIN LATERAL (
    SELECT min(j.time) AS time, max(j.principal) AS principal, bool_or(j.event = 'ACKED') AS purged,
           sum(j.messages) FILTER (WHERE j.event IN ('SKIPPED', 'ACKED')) AS skipped
    FROM (
        SELECT time, event, principal, (SELECT sum(upper(r) - lower(r)) FROM unnest(seqs) AS r) AS messages
        FROM delivery_journal
        WHERE shard_id = p.shard_id AND subscription_id = p.subscription_id AND bucket = -1
        ORDER BY number DESC
        LIMIT 20
    ) AS j
    WHERE j.time = last_sought.time
    HAVING count(*) > 0
) AS sought ON true
-- Whether the filter matches any message is looked up only where neither the attempts nor the backlog say so.
LEFT JOIN LATERAL (
    SELECT true AS is_there
    FROM delivery_records AS r
    WHERE p.filter_path IS NOT NULL AND out.attempts = 0 AND scan.matching = 0
      AND r.shard_id = p.shard_id AND r.subscription_id = p.subscription_id
      AND r.recorded_at >= %(now)s - interval '1 day'
    LIMIT 1
) AS recorded ON true
CROSS JOIN LATERAL (
    SELECT count(*) AS compared, count(*) FILTER (WHERE m.matches) AS matching
    FROM (
        SELECT l.attributes @@ p.filter_path
               AND (p.body_path IS NULL OR message_matches(
                   l.attributes, l.body, l.publish_time, p.body_path
               )) AS matches
        FROM messages AS l
        WHERE p.filter_path IS NOT NULL AND out.attempts = 0 AND scan.matching = 0 AND recorded.is_there IS NULL
          AND l.shard_id = p.shard_id
          AND l.publish_time >= p.retained_since AND l.publish_time <= p.last_publish_time
        ORDER BY l.publish_time DESC, l.last_seq DESC
        LIMIT %(max_newest)s
    ) AS m
) AS newest
