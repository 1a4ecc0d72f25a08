-- Returns the oldest batch of a shard that was published at a time or later.
-- parameters: shard_id int8, since timestamptz
-- columns: publish_time, first_seq
SELECT publish_time, last_seq - count + 1 AS first_seq
FROM message_batches
WHERE shard_id = %(shard_id)s AND publish_time >= %(since)s
ORDER BY publish_time, last_seq
LIMIT 1
