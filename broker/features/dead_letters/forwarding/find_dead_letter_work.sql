-- Returns subscriptions and shards with messages that failed as often as their dead-letter policy allows.  Messages
-- that are marked as exhausted are found even without a policy: they must be retried if it was removed.
-- parameters: now timestamptz
SELECT s.name, work.shard_id
FROM (
    SELECT shard_id, subscription_id FROM delivery_attempts WHERE status = 'exhausted'
    UNION
    SELECT c.shard_id, c.subscription_id
    FROM subscriptions AS p
    JOIN cursors AS c USING (subscription_id)
    WHERE p.dead_letter_topic IS NOT NULL
      AND EXISTS (
          SELECT FROM delivery_attempts AS d
          WHERE d.shard_id = c.shard_id
            AND d.subscription_id = c.subscription_id
            AND d.next_delivery_at >= c.due_floor
            AND d.next_delivery_at <= %(now)s
            AND CASE
                WHEN d.ordering_key IS NULL THEN d.attempt_number
                ELSE d.attempt_numbers[position(B'1' IN d.open)]
            END >= p.max_delivery_attempts
            AND bit_count(d.open) > 0
      )
) AS work
JOIN subscriptions AS s USING (subscription_id)
WHERE NOT s.detached
