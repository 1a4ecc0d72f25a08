-- Attempts whose messages were all published before `since` or all from `until` on.
DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND ordering_key IS NULL
  AND (last_publish_time < %(since)s OR first_publish_time >= %(until)s)
