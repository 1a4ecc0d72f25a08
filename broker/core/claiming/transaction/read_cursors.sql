-- Returns the subscriptions that have a cursor in a shard, whether it is locked or not.
-- parameters: shard_id int8, subscription_ids int8[]
-- columns: subscription_id
SELECT subscription_id
FROM cursors
WHERE shard_id = %(shard_id)s AND subscription_id = ANY (%(subscription_ids)s::int8[])
