-- Returns messages that were claimed and reached no client: they are due again at once, and the attempt does not
-- count.
-- parameters: shard_id int8, subscription_id int8, attempt_ids int8[], now timestamptz
UPDATE delivery_attempts
SET status = 'pending',
    next_delivery_at = %(now)s,
    attempt_number = attempt_number - 1,
    out_count = CASE WHEN ordering_key IS NOT NULL THEN 0 END,
    attempt_numbers = CASE WHEN ordering_key IS NOT NULL THEN ARRAY(
        SELECT CASE WHEN ordinal <= out_count THEN number - 1 ELSE number END
        FROM unnest(attempt_numbers) WITH ORDINALITY AS n (number, ordinal)
        ORDER BY ordinal
    ) END
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND attempt_id = ANY (%(attempt_ids)s::int8[])
  AND part = 0
