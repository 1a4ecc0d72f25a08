WITH expired AS (
    DELETE FROM snapshots WHERE expire_time <= %(now)s RETURNING snapshot_id
),
outstanding AS (
    DELETE FROM snapshot_outstanding AS o USING expired AS e WHERE o.snapshot_id = e.snapshot_id
)
DELETE FROM snapshot_positions AS p USING expired AS e WHERE p.snapshot_id = e.snapshot_id
