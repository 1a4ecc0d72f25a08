-- Deletes attempts whose messages were all published before `since`, or all at or after `until`.
DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND ordering_key IS NULL
  AND (last_publish_time < %(since)s OR first_publish_time >= %(until)s)
