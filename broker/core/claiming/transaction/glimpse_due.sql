-- Returns a row if anything of a subscription is due since `since`, a time before which nothing is due.  It reads
-- one table, so that Citus plans it quickly on distributed tables.  The caller runs lock_due_attempts.sql next if
-- there is a row, or if `since` was too late.
-- parameters: shard_id int8, subscription_id int8, since timestamptz, now timestamptz
SELECT 1
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND next_delivery_at >= %(since)s
  AND next_delivery_at <= %(now)s
LIMIT 1
