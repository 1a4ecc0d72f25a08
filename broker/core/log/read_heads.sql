-- parameters: shard_ids int8[]
SELECT shard_id, head FROM shards WHERE shard_id = ANY (%(shard_ids)s::int8[])
