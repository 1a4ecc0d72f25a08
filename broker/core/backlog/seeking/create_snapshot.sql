-- Copies the cursors and the outstanding messages of a subscription to a snapshot.  Of the row of an ordering key,
-- the messages that are waiting are copied together with those that are not settled.
--
-- One statement copies both, without locks, so that both have the same database snapshot.  A statement that locked
-- the cursors would wait for a claim and then see the claim's cursor, but not the attempts that it inserted
-- (tests/interleavings/test_seek_rules.py).
WITH positions AS (
    INSERT INTO snapshot_positions (shard_id, snapshot_id, next_publish_time, next_seq)
    SELECT shard_id, %(snapshot_id)s, next_publish_time, next_seq
    FROM cursors
    WHERE subscription_id = %(subscription_id)s
    RETURNING shard_id
),
outstanding AS (
    INSERT INTO snapshot_outstanding (
        shard_id, snapshot_id, attempt_id, part, seqs, open, first_publish_time, last_publish_time,
        ordering_key, waiting
    )
    SELECT d.shard_id, %(snapshot_id)s, d.attempt_id, d.part,
           CASE WHEN d.ordering_key IS NULL THEN d.seqs ELSE '{}' END,
           CASE WHEN d.ordering_key IS NULL THEN d.open ELSE '' END,
           d.first_publish_time, d.last_publish_time, d.ordering_key, d.waiting + unsettled(d.seqs, d.open)
    FROM cursors AS c
    JOIN delivery_attempts AS d USING (shard_id, subscription_id)
    WHERE c.subscription_id = %(subscription_id)s
)
SELECT count(*) FROM positions
