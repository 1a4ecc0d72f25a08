-- Returns where subscriptions have messages that failed as often as their policies allow, on all nodes: a part of
-- find_dead_letter_work_citus.py.
-- parameters: subscription_ids int8[], max_attempts int8[], now timestamptz
-- columns: shard_id, subscription_id
SELECT c.shard_id, c.subscription_id
FROM cursors AS c
JOIN unnest(%(subscription_ids)s::int8[], %(max_attempts)s::int8[]) AS p (subscription_id, max_attempts)
    ON p.subscription_id = c.subscription_id
WHERE EXISTS (
    SELECT FROM delivery_attempts AS d
    WHERE d.shard_id = c.shard_id
      AND d.subscription_id = c.subscription_id
      AND d.next_delivery_at >= c.due_floor
      AND d.next_delivery_at <= %(now)s
      AND CASE
          WHEN d.ordering_key IS NULL THEN d.attempt_number
          ELSE d.attempt_numbers[position(B'1' IN d.open)]
      END >= p.max_attempts
      AND bit_count(d.open) > 0
)
