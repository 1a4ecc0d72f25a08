-- What a snapshot holds as outstanding, due at once under new attempt ids.
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number,
    next_delivery_at, delivered_at, seqs, open, first_publish_time, last_publish_time
)
SELECT %(shard_id)s, %(subscription_id)s, %(first_attempt_id)s + row_number() OVER (ORDER BY attempt_id, part), 0,
       'pending', 0, %(now)s, %(now)s, seqs, open, first_publish_time, last_publish_time
FROM snapshot_outstanding
WHERE snapshot_id = %(snapshot_id)s AND shard_id = %(shard_id)s
