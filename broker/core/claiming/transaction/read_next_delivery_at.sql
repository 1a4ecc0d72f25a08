-- read_next_delivery_ats for one subscription, where shards lie on nodes: it needs hardly any planning.
-- parameters: shard_id int8, subscription_id int8, now timestamptz
-- columns: subscription_id, next_delivery_at
SELECT subscription_id, next_delivery_at
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at > %(now)s
  AND next_delivery_at < 'infinity'  -- exhausted: the dead-letter forwarder's
ORDER BY next_delivery_at
LIMIT 1
