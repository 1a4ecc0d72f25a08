-- take_sequences where the head is known before (core/log/known_heads.py): anybody else's publish since then, or a
-- shard that is closed, is an error, a division by zero, and undoes what is sent along.
-- parameters: shard_id int8, count int8, head int8, publish_time timestamptz
UPDATE shards
SET head = head + %(count)s / (open AND head = %(head)s AND last_publish_time <= %(publish_time)s)::int4,
    last_publish_time = %(publish_time)s
WHERE shard_id = %(shard_id)s
RETURNING head, last_publish_time
