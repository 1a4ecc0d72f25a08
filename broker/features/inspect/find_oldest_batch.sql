-- When the oldest message of a shard was published, of those published from a time on.
-- parameters: shard_id int8, since timestamptz
-- columns: publish_time
SELECT publish_time
FROM message_batches
WHERE shard_id = %(shard_id)s AND publish_time >= %(since)s
ORDER BY publish_time, last_seq
LIMIT 1
