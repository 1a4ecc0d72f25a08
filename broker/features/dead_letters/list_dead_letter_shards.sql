-- Returns the shards that have the dead letters of a subscription.
-- parameters: source_shard_ids int8[], subscription_id int8
-- columns: shard_id
SELECT DISTINCT d.shard_id
FROM dead_letters AS d
WHERE d.source_shard_id = ANY (%(source_shard_ids)s::int8[]) AND d.subscription_id = %(subscription_id)s
