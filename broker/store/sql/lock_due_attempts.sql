-- Rows whose time has come, earliest first, but locked in key order (the order in which acks lock them).
-- The due condition stands twice: the outer one is checked again on the locked row, which an ack or a new
-- deadline may have changed while this statement waited for it [T].
-- parameters: shard_id int8, subscription_id int8, now timestamptz, max_rows int8
SELECT attempt_id, part, status, attempt_number, next_delivery_at,
       seqs::text AS seqs, open::text AS open, first_publish_time, last_publish_time,
       ordering_key, attempt_numbers::text AS attempt_numbers, waiting::text AS waiting
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at <= %(now)s
  AND (attempt_id, part) IN (
      SELECT d.attempt_id, d.part
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
  )
ORDER BY attempt_id, part
FOR UPDATE
