-- Returns when the next redelivery of one subscription is due.  Citus hardly needs to plan a statement for one
-- subscription (docs/decisions/0059-fewer-hops-on-citus.md).
-- for one of: subscription_ids
-- parameters: shard_id int8, subscription_id int8, now timestamptz
-- columns: subscription_id, next_delivery_at
SELECT subscription_id, next_delivery_at
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at > %(now)s
  AND next_delivery_at < 'infinity'  -- exhausted: left to the dead-letter forwarder
ORDER BY next_delivery_at
LIMIT 1
