-- Returns the subscriptions that read some shards.
-- parameters: shard_ids int8[]
-- columns: subscription_id, name
SELECT DISTINCT s.subscription_id, s.name
FROM cursors AS c
JOIN subscriptions AS s USING (subscription_id)
WHERE c.shard_id = ANY (%(shard_ids)s::int8[])
ORDER BY s.name
