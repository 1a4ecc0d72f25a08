-- When the next redelivery of a subscription is due in a shard: a waiting pull sets its alarm by it.
-- parameters: shard_id int8, subscription_id int8
SELECT next_delivery_at
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at < 'infinity'  -- exhausted: the dead-letter forwarder's
  AND next_delivery_at >= (
      SELECT due_floor FROM cursors
      WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
  )
ORDER BY next_delivery_at
LIMIT 1
