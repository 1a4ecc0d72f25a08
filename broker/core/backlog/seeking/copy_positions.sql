-- Copies the cursors of a subscription to a snapshot: the first half of create_snapshot.sql, for distributed
-- tables.  The cursors were locked by earlier statements.
INSERT INTO snapshot_positions (shard_id, snapshot_id, next_publish_time, next_seq)
SELECT shard_id, %(snapshot_id)s, next_publish_time, next_seq
FROM cursors
WHERE subscription_id = %(subscription_id)s AND shard_id = ANY (%(shard_ids)s::int8[])
