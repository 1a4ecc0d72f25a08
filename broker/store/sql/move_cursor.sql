-- parameters: shard_id int8, subscription_id int8, next_publish_time timestamptz, next_seq int8, due_floor
--     timestamptz
UPDATE cursors
SET next_publish_time = %(next_publish_time)s, next_seq = %(next_seq)s, due_floor = %(due_floor)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
