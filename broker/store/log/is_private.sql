-- Whether a shard is a subscription's own (store/resources/private_shards.py).
SELECT topic_id < 0 FROM shards WHERE shard_id = %(shard_id)s
