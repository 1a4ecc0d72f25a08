-- Returns whether a shard is the private shard of a subscription
-- (features/dead_letters/editing/private_shard_rows.py).
SELECT topic_id < 0 FROM shards WHERE shard_id = %(shard_id)s
