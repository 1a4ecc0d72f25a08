-- A shard that nobody publishes to takes messages, or takes them no more: within one transaction.
-- parameters: shard_id int8, open bool
UPDATE shards SET open = %(open)s WHERE shard_id = %(shard_id)s
