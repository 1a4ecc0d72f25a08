-- The rows of keys of which nothing is out and nothing waits: their next messages are fresh ones again.  Only a claim
-- runs this, under the cursor's lock, and before it reads fresh messages [T].
-- parameters: shard_id int8, subscription_id int8, attempt_ids int8[]
DELETE FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND attempt_id = ANY (%(attempt_ids)s::int8[])
  AND part = 0
