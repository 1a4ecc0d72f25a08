-- Which messages of some attempts are out: neither acked nor nacked, their ack deadline not passed.
-- parameters: shard_id int8, subscription_id int8, attempt_ids int8[], now timestamptz
SELECT subscription_id, attempt_id, open::text
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND attempt_id = ANY(%(attempt_ids)s::int8[])
  AND status = 'delivering'
  AND next_delivery_at > %(now)s
