UPDATE cursors
SET next_publish_time = %(next_publish_time)s, next_seq = %(next_seq)s, due_floor = %(due_floor)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
