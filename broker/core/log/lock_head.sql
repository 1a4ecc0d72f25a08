-- Locks the head of a shard before it is asked what the shard has: whoever waited for the lock reads with a snapshot
-- of its own, in the statements that follow.  No row: the shard is closed or frozen.
-- parameters: shard_id int8
-- columns: shard_id
SELECT shard_id FROM shards WHERE shard_id = %(shard_id)s AND open AND frozen_at IS NULL FOR NO KEY UPDATE
