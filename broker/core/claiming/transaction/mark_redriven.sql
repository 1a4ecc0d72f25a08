-- Marks new rows whose messages were redriven from a dead-letter topic.  The mark stays until they are
-- acknowledged.
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[]
UPDATE delivery_attempts AS d
SET redriven = true
FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[]) AS r (subscription_id, attempt_id)
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = 0
