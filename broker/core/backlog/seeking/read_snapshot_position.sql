-- Returns the position of a cursor in a snapshot.  There is no row if the snapshot was deleted, or does not cover
-- the shard.
SELECT next_publish_time, next_seq
FROM snapshot_positions
WHERE snapshot_id = %(snapshot_id)s AND shard_id = %(shard_id)s
