-- Inserts the outstanding messages of a snapshot, due at once and under new attempt ids, for a subscription without
-- ordering.  Rows of ordering keys, if the snapshot is of an ordered subscription, end at the position of its
-- cursor.
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting
)
SELECT %(shard_id)s, %(subscription_id)s, %(first_attempt_id)s + row_number() OVER (ORDER BY attempt_id, part), 0,
       'pending', 0, %(now)s, %(now)s, seqs, open, first_publish_time, last_publish_time, ordering_key,
       CASE WHEN ordering_key IS NOT NULL THEN 0 END,
       CASE WHEN ordering_key IS NOT NULL THEN '{}'::int4[] END,
       waiting * int8multirange(int8range(NULL, %(next_seq)s))
FROM snapshot_outstanding
WHERE snapshot_id = %(snapshot_id)s AND shard_id = %(shard_id)s
