-- Where subscriptions stand in some shards.
-- parameters: shard_ids int8[]
-- columns: shard_id, subscription_id, next_seq
SELECT shard_id, subscription_id, next_seq FROM cursors WHERE shard_id = ANY (%(shard_ids)s::int8[])
