-- Gives out the next `count` sequences of a shard.
--
-- The row stays locked until the commit, so that sequences become visible in their order and without gaps: no
-- reader can pass a message that commits late.  `open` is checked only here, so a stale cache cannot publish to a
-- deleted topic.
-- parameters: shard_id int8, count int8, now timestamptz
UPDATE shards
SET head = head + %(count)s,
    last_publish_time = greatest(last_publish_time, %(now)s)
WHERE shard_id = %(shard_id)s AND open
RETURNING head, last_publish_time
