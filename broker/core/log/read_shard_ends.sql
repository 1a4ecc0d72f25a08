-- Where the logs of some shards end.
-- parameters: shard_ids int8[]
-- columns: shard_id, head, last_publish_time
SELECT shard_id, head, last_publish_time FROM shards WHERE shard_id = ANY (%(shard_ids)s::int8[])
