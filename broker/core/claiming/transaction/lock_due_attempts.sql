-- Locks due rows, at most `max_rows` of each subscription, in key order, as acks do.
--
-- Of the earliest `max_seen` rows, those with redelivered messages that came back since `retried_since` are taken
-- last.  Reading a row without locking it is cheap, and a few messages that are nacked in a tight loop must not
-- starve the others.
--
-- The result has two kinds of rows: first those that were found, with their times only (`found_at`), then those
-- that are locked.  The condition that a row is due appears twice, because it is checked again on the locked row:
-- an ack or a new deadline may have changed the row while this statement waited for it.  If only the locked rows
-- were counted, the claim would miss rows that are still due (tests/interleavings/test_claim_rules.py).
-- parameters: shard_id int8, subscription_ids int8[], max_rows int8[], now timestamptz, max_seen int8[],
--     retried_since timestamptz
-- columns: subscription_id, found_at, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs,
--     open, first_publish_time, last_publish_time, ordering_key, attempt_numbers, waiting, redriven
WITH found AS MATERIALIZED (
    SELECT w.subscription_id, d.attempt_id, d.part, d.next_delivery_at
    FROM unnest(%(subscription_ids)s::int8[], %(max_rows)s::int8[], %(max_seen)s::int8[])
        AS w (subscription_id, max_rows, max_seen)
    JOIN cursors AS c ON c.shard_id = %(shard_id)s AND c.subscription_id = w.subscription_id
    CROSS JOIN LATERAL (
        SELECT s.attempt_id, s.part, s.next_delivery_at
        FROM (
            SELECT a.attempt_id, a.part, a.next_delivery_at,
                   a.delivered_at > %(retried_since)s AND coalesce(
                       CASE WHEN a.ordering_key IS NULL THEN a.attempt_number
                            ELSE a.attempt_numbers[position(B'1' IN a.open)] END, 0
                   ) > 1 AS is_just_retried
            FROM delivery_attempts AS a
            WHERE a.shard_id = %(shard_id)s
              AND a.subscription_id = w.subscription_id
              AND a.next_delivery_at >= c.due_floor
              AND a.next_delivery_at <= %(now)s
            ORDER BY a.next_delivery_at
            LIMIT w.max_seen
        ) AS s
        ORDER BY s.is_just_retried, s.next_delivery_at
        LIMIT w.max_rows
    ) AS d
),
locked AS MATERIALIZED (
    SELECT d.subscription_id, d.attempt_id, d.part, d.status, d.attempt_number, d.next_delivery_at, d.delivered_at,
           d.seqs::text AS seqs, d.open::text AS open, d.first_publish_time, d.last_publish_time,
           d.ordering_key, d.attempt_numbers::text AS attempt_numbers, d.waiting::text AS waiting, d.redriven
    FROM found AS f
    JOIN delivery_attempts AS d
      ON d.shard_id = %(shard_id)s
     AND d.subscription_id = f.subscription_id
     AND d.attempt_id = f.attempt_id
     AND d.part = f.part
    WHERE d.next_delivery_at <= %(now)s
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
)
SELECT f.subscription_id, f.next_delivery_at AS found_at, NULL AS attempt_id, NULL AS part, NULL AS status,
       NULL AS attempt_number, NULL AS next_delivery_at, NULL AS delivered_at, NULL AS seqs, NULL AS open,
       NULL AS first_publish_time, NULL AS last_publish_time, NULL AS ordering_key, NULL AS attempt_numbers,
       NULL AS waiting, NULL AS redriven
FROM found AS f
UNION ALL
SELECT l.subscription_id, NULL, l.attempt_id, l.part, l.status, l.attempt_number, l.next_delivery_at, l.delivered_at,
       l.seqs, l.open, l.first_publish_time, l.last_publish_time, l.ordering_key, l.attempt_numbers, l.waiting,
       l.redriven
FROM locked AS l
