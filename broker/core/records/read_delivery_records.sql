-- Returns the rows of the record that may contain a message of a bucket, the newest first.
-- parameters: shard_id int8, subscription_id int8, bucket int8, limit int8
-- columns: recorded_at, principal, client, answer, entries
SELECT recorded_at, principal, client, answer, entries
FROM delivery_records
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND bucket = %(bucket)s
ORDER BY recorded_at DESC
LIMIT %(limit)s
