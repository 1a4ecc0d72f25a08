-- Locks the rows of ordering keys, in key order, as everywhere.
-- parameters: shard_id int8, subscription_ids int8[], ordering_keys text[]
-- columns: subscription_id, ordering_key
SELECT d.subscription_id, d.ordering_key
FROM delivery_attempts AS d
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = ANY (%(subscription_ids)s::int8[])
  AND d.ordering_key = ANY (%(ordering_keys)s::text[])
ORDER BY d.subscription_id, d.attempt_id, d.part
FOR UPDATE
