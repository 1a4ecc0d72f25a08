-- Opens or closes a private shard, which is open only within the transaction that appends to it.
-- parameters: shard_id int8, open bool
UPDATE shards SET open = %(open)s WHERE shard_id = %(shard_id)s
