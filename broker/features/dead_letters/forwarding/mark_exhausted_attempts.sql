-- Marks due attempts that failed as often as the dead-letter policy allows, for the forwarder.  A claim does the
-- same to those that it reads; this is for subscriptions that no client pulls.
-- parameters: shard_id int8, subscription_id int8, now timestamptz, max_attempts int8
UPDATE delivery_attempts
SET status = 'exhausted', next_delivery_at = 'infinity',
    failure = CASE status WHEN 'delivering' THEN 'deadline' ELSE failure END
WHERE shard_id = %(shard_id)s AND (shard_id, subscription_id, attempt_id, part) IN (
    SELECT shard_id, subscription_id, attempt_id, part
    FROM delivery_attempts
    WHERE shard_id = %(shard_id)s
      AND subscription_id = %(subscription_id)s
      AND next_delivery_at <= %(now)s
      AND CASE
          WHEN ordering_key IS NULL THEN attempt_number
          ELSE attempt_numbers[position(B'1' IN open)]
      END >= %(max_attempts)s
    ORDER BY attempt_id, part
    FOR UPDATE SKIP LOCKED  -- a claim or another forwarder is at it
)
