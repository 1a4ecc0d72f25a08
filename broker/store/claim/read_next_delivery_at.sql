-- read_next_delivery_ats, of one, where shards lie on nodes: planned in no time.
-- parameters: shard_id int8, subscription_ids int8, now timestamptz
-- columns: subscription_id, next_delivery_at
SELECT subscription_id, next_delivery_at
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_ids)s
  AND next_delivery_at > %(now)s
  AND next_delivery_at < 'infinity'  -- exhausted: the dead-letter forwarder's
ORDER BY next_delivery_at
LIMIT 1
