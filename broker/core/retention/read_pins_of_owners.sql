-- Returns the oldest publish times that are needed, for each kind and owner, for distributed tables.
--
-- Citus runs it as one task for each shard of the tables.  Each task is one statement with one snapshot, which is
-- sufficient: a claim or a seek moves messages between these tables only within a shard.
SELECT kind, owner, min(time)
FROM (
    SELECT c.shard_id, 'cursor' AS kind, c.subscription_id AS owner, c.next_publish_time AS time
    FROM cursors AS c
    JOIN shards AS h ON h.shard_id = c.shard_id
    WHERE c.next_seq <= h.head
    UNION ALL
    SELECT p.shard_id, 'snapshot', p.snapshot_id, p.next_publish_time FROM snapshot_positions AS p
    UNION ALL
    SELECT o.shard_id, 'snapshot', o.snapshot_id, o.first_publish_time FROM snapshot_outstanding AS o
    UNION ALL
    SELECT d.shard_id,
           CASE WHEN d.ordering_key IS NULL THEN 'attempt' ELSE 'key' END
               || CASE WHEN d.redriven THEN ' redriven' ELSE '' END,
           d.subscription_id, d.first_publish_time
    FROM delivery_attempts AS d
) AS pins
GROUP BY kind, owner
