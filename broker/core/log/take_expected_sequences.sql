-- Gives out the next `count` sequences of a shard as take_sequences.sql does, if the head is still the expected one
-- (core/log/known_heads.py).  If another publish has moved the head, or the shard is closed, the statement fails
-- with a division by zero, which rolls back the statements that were sent with it.
-- parameters: shard_id int8, count int8, head int8, publish_time timestamptz
UPDATE shards
SET head = head + %(count)s / (open AND head = %(head)s AND last_publish_time <= %(publish_time)s)::int4,
    last_publish_time = %(publish_time)s
WHERE shard_id = %(shard_id)s
RETURNING head, last_publish_time
