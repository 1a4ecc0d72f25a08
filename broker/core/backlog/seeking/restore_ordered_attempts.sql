-- Inserts the outstanding messages of a snapshot as restore_attempts.sql does, for a subscription with ordering:
-- one row for each key, whichever rows its messages were in.
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting
)
WITH held AS (
    SELECT *, CASE WHEN ordering_key IS NULL THEN (
        SELECT range_agg(int8range(s.seq, s.seq + 1))
        FROM (
            SELECT seq, row_number() OVER (ORDER BY seq) AS ordinal
            FROM unnest(o.seqs) AS r CROSS JOIN LATERAL generate_series(lower(r), upper(r) - 1) AS seq
        ) AS s
        WHERE get_bit(o.open, s.ordinal::int4 - 1) = 1
    ) END AS open_seqs
    FROM snapshot_outstanding AS o
    WHERE snapshot_id = %(snapshot_id)s AND shard_id = %(shard_id)s
),
-- Each row is one index range, as in read_due_messages.sql.  UNION removes duplicates: a message that is being
-- moved to the stragglers is in both tables.
outstanding AS (
    SELECT h.attempt_id, h.part, m.seq, m.publish_time, m.ordering_key
    FROM held AS h
    CROSS JOIN LATERAL (
        SELECT l.seq, l.publish_time, l.ordering_key
        FROM messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (h.first_publish_time, lower(h.open_seqs))
          AND (l.publish_time, l.last_seq) < (h.last_publish_time, upper(h.open_seqs) + 1000)
          AND l.publish_time >= h.first_publish_time
          AND l.publish_time <= h.last_publish_time
          AND l.seq <@ h.open_seqs
        UNION
        SELECT l.seq, l.publish_time, l.ordering_key
        FROM straggler_messages AS l
        WHERE l.shard_id = %(shard_id)s
          AND (l.publish_time, l.last_seq) >= (h.first_publish_time, lower(h.open_seqs))
          AND (l.publish_time, l.last_seq) < (h.last_publish_time, upper(h.open_seqs) + 1000)
          AND l.seq <@ h.open_seqs
    ) AS m
),
rows AS (
    SELECT NULL AS ordering_key, range_agg(int8range(seq, seq + 1)) AS seqs, repeat('1', count(*)::int4)::varbit AS open,
           min(publish_time) AS first_publish_time, max(publish_time) AS last_publish_time, NULL::int8multirange AS waiting
    FROM outstanding
    WHERE ordering_key IS NULL
    GROUP BY attempt_id, part
    UNION ALL
    SELECT ordering_key, '{}', '', min(first_publish_time), max(last_publish_time),
           range_agg(waiting) + int8multirange(int8range(%(next_seq)s, NULL))
    FROM (
        SELECT ordering_key, first_publish_time, last_publish_time, waiting FROM held WHERE ordering_key IS NOT NULL
        UNION ALL
        SELECT ordering_key, min(publish_time), max(publish_time), range_agg(int8range(seq, seq + 1))
        FROM outstanding
        WHERE ordering_key IS NOT NULL
        GROUP BY ordering_key
    ) AS by_key
    GROUP BY ordering_key
)
SELECT %(shard_id)s, %(subscription_id)s, %(first_attempt_id)s + row_number() OVER (), 0,
       'pending', 0, %(now)s, %(now)s, seqs, open, first_publish_time, last_publish_time, ordering_key,
       CASE WHEN ordering_key IS NOT NULL THEN 0 END,
       CASE WHEN ordering_key IS NOT NULL THEN '{}'::int4[] END,
       waiting
FROM rows
