-- Subscriptions and shards with messages that were delivered as often as their dead-letter policy allows, and failed.
-- parameters: now timestamptz
SELECT s.name, c.shard_id
FROM subscriptions AS s
JOIN cursors AS c USING (subscription_id)
WHERE s.dead_letter_topic IS NOT NULL
  AND (
      EXISTS (
          SELECT FROM delivery_attempts AS d
          WHERE d.shard_id = c.shard_id AND d.subscription_id = c.subscription_id AND d.status = 'exhausted'
      )
      OR EXISTS (
          SELECT FROM delivery_attempts AS d
          WHERE d.shard_id = c.shard_id
            AND d.subscription_id = c.subscription_id
            AND d.next_delivery_at >= c.due_floor
            AND d.next_delivery_at <= %(now)s
            AND CASE
                WHEN d.ordering_key IS NULL THEN d.attempt_number
                ELSE d.attempt_numbers[position(B'1' IN d.open)]
            END >= s.max_delivery_attempts
            AND bit_count(d.open) > 0
      )
  )
