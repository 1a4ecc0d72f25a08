DELETE FROM snapshots WHERE expire_time <= %(now)s RETURNING snapshot_id
