-- Copies the outstanding messages of a subscription to a snapshot: the second half of create_snapshot.sql, for
-- distributed tables.  The cursors were locked by earlier statements.
INSERT INTO snapshot_outstanding (
    shard_id, snapshot_id, attempt_id, part, seqs, open, first_publish_time, last_publish_time, ordering_key, waiting
)
SELECT d.shard_id, %(snapshot_id)s, d.attempt_id, d.part,
       CASE WHEN d.ordering_key IS NULL THEN d.seqs ELSE '{}' END,
       CASE WHEN d.ordering_key IS NULL THEN d.open ELSE '' END,
       d.first_publish_time, d.last_publish_time, d.ordering_key, d.waiting + unsettled(d.seqs, d.open)
FROM delivery_attempts AS d
WHERE d.subscription_id = %(subscription_id)s AND d.shard_id = ANY (%(shard_ids)s::int8[])
