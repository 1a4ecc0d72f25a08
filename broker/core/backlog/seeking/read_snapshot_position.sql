-- Where a cursor stood when the snapshot was taken; no row: the snapshot is gone, or has none in this shard.
SELECT next_publish_time, next_seq
FROM snapshot_positions
WHERE snapshot_id = %(snapshot_id)s AND shard_id = %(shard_id)s
