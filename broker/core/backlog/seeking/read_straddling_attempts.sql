-- Returns attempts with messages on both sides of a publish time.
SELECT attempt_id, part, seqs::text, open::text
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND ordering_key IS NULL
  AND first_publish_time < %(time)s
  AND last_publish_time >= %(time)s
