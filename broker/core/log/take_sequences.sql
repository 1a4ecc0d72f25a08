-- Gives out the next `count` sequences of a shard.  The row stays locked until commit, so sequences become
-- visible in their own order and without gaps; nobody can pass a message that commits late.
-- `open` is checked here and nowhere else: a stale cache cannot publish to a deleted topic.
-- parameters: shard_id int8, count int8, now timestamptz
UPDATE shards
SET head = head + %(count)s,
    last_publish_time = greatest(last_publish_time, %(now)s)
WHERE shard_id = %(shard_id)s AND open
RETURNING head, last_publish_time
