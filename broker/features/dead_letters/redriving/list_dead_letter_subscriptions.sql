-- Returns the subscriptions that read the shards which have the dead letters of a subscription.
-- parameters: source_shard_ids int8[], subscription_id int8
-- columns: subscription_id, name
SELECT DISTINCT s.subscription_id, s.name
FROM (
    SELECT DISTINCT d.shard_id
    FROM dead_letters AS d
    WHERE d.source_shard_id = ANY (%(source_shard_ids)s::int8[]) AND d.subscription_id = %(subscription_id)s
) AS l
JOIN cursors AS c ON c.shard_id = l.shard_id
JOIN subscriptions AS s ON s.subscription_id = c.subscription_id
ORDER BY s.name
