-- Deletes rows of ordering keys that have no outstanding and no waiting messages.  The next messages of these keys
-- are fresh ones.  Only a claim runs this, under the lock of the cursor and before it reads fresh messages
-- (tests/interleavings/test_ordering_rules.py).
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[]
DELETE FROM delivery_attempts AS d
USING unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS r (subscription_id, attempt_id)
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = 0
