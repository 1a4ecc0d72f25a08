-- Returns the heads of shards and their last publish times.
-- parameters: shard_ids int8[]
-- columns: shard_id, head, last_publish_time
SELECT shard_id, head, last_publish_time FROM shards WHERE shard_id = ANY (%(shard_ids)s::int8[])
