-- Whether anything of a subscription is due, since a time before which nothing is: of one table, so that where shards
-- lie on nodes it is planned in no time.  lock_due_attempts comes behind it if there is a row, or if the time was too late.
-- parameters: shard_id int8, subscription_id int8, since timestamptz, now timestamptz
SELECT 1
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at >= %(since)s
  AND next_delivery_at <= %(now)s
LIMIT 1
