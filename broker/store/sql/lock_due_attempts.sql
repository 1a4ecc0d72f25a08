-- Rows whose time has come, earliest first, but locked in key order (the order in which acks lock them).
-- The due condition stands twice: the second one is checked again on the locked row, which an ack or a new
-- deadline may have changed while this statement waited for it [T].
-- A last row (without attempt_id) tells how many were found, such rows included, and the last one's time: what comes
-- back may be fewer than `max_rows` although there are more [T].
-- parameters: shard_id int8, subscription_id int8, now timestamptz, max_rows int8
WITH found AS MATERIALIZED (
    SELECT d.attempt_id, d.part, d.next_delivery_at
    FROM delivery_attempts AS d
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = %(subscription_id)s
      AND d.next_delivery_at >= (
          SELECT due_floor FROM cursors
          WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
      )
      AND d.next_delivery_at <= %(now)s
    ORDER BY d.next_delivery_at
    LIMIT %(max_rows)s
),
locked AS MATERIALIZED (
    SELECT d.attempt_id, d.part, d.status, d.attempt_number, d.next_delivery_at,
           d.seqs::text AS seqs, d.open::text AS open, d.first_publish_time, d.last_publish_time,
           d.ordering_key, d.attempt_numbers::text AS attempt_numbers, d.waiting::text AS waiting
    FROM delivery_attempts AS d
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = %(subscription_id)s
      AND d.next_delivery_at <= %(now)s
      AND (d.attempt_id, d.part) IN (SELECT f.attempt_id, f.part FROM found AS f)
    ORDER BY d.attempt_id, d.part
    FOR UPDATE OF d
)
SELECT l.*, NULL AS found_rows, NULL AS found_until
FROM locked AS l
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, count(*), max(f.next_delivery_at)
FROM found AS f
HAVING count(*) > 0
