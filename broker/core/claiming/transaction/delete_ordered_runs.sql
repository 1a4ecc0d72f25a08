-- The rows of keys of which nothing is out and nothing waits: their next messages are fresh ones again.  Only a claim
-- runs this, under the cursor's lock, and before it reads fresh messages
-- (tests/interleavings/test_ordering_rules.py).
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[]
DELETE FROM delivery_attempts AS d
USING unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS r (subscription_id, attempt_id)
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = 0
