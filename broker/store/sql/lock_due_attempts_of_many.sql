-- As lock_due_attempts, of many subscriptions: the earliest `max_rows` of each, locked in key order, the due condition
-- checked again on the locked row [T].  The last rows, one for each subscription that something was found for (without
-- attempt_id), tell as there how many were found, and the last one's time.
-- parameters: shard_id int8, subscription_ids int8[], due_floors timestamptz[], max_rows int8[], now timestamptz
WITH found AS MATERIALIZED (
    SELECT w.subscription_id, d.attempt_id, d.part, d.next_delivery_at
    FROM unnest(%(subscription_ids)s::int8[], %(due_floors)s::timestamptz[], %(max_rows)s::int8[])
        AS w (subscription_id, due_floor, max_rows)
    CROSS JOIN LATERAL (
        SELECT a.attempt_id, a.part, a.next_delivery_at
        FROM delivery_attempts AS a
        WHERE a.shard_id = %(shard_id)s
          AND a.subscription_id = w.subscription_id
          AND a.next_delivery_at >= w.due_floor
          AND a.next_delivery_at <= %(now)s
        ORDER BY a.next_delivery_at
        LIMIT w.max_rows
    ) AS d
),
locked AS MATERIALIZED (
    SELECT d.subscription_id, d.attempt_id, d.part, d.status, d.attempt_number, d.next_delivery_at,
           d.seqs::text AS seqs, d.open::text AS open, d.first_publish_time, d.last_publish_time,
           d.ordering_key, d.attempt_numbers::text AS attempt_numbers, d.waiting::text AS waiting
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
SELECT l.*, NULL AS found_rows, NULL AS found_until
FROM locked AS l
UNION ALL
SELECT f.subscription_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       count(*), max(f.next_delivery_at)
FROM found AS f
GROUP BY f.subscription_id
