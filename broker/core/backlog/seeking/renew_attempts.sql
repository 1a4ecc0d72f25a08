-- Makes all outstanding messages due at once, under new attempt ids, so that the ack ids that clients hold are
-- invalid.
UPDATE delivery_attempts AS d
SET attempt_id = %(first_attempt_id)s + n.ordinal, part = 0, status = 'pending', failure = NULL, attempt_number = 0,
    next_delivery_at = %(now)s
FROM (
    SELECT attempt_id, part, row_number() OVER (ORDER BY attempt_id, part) AS ordinal
    FROM delivery_attempts
    WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
) AS n
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = %(subscription_id)s
  AND d.attempt_id = n.attempt_id
  AND d.part = n.part
