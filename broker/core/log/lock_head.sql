-- Locks the head of a shard.  It is a statement of its own, so that the statements that follow read with a snapshot
-- taken after the lock.  There is no row if the shard is closed or frozen.
-- parameters: shard_id int8
-- columns: shard_id
SELECT shard_id FROM shards WHERE shard_id = %(shard_id)s AND open AND frozen_at IS NULL FOR NO KEY UPDATE
