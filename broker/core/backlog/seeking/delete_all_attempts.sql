DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
