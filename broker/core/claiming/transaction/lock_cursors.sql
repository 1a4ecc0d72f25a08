-- Locks cursors for a claim.  It is a statement of its own, because the statements that follow must have a later
-- snapshot than the lock (tests/interleavings/test_claim_rules.py).
-- parameters: shard_id int8, subscription_ids int8[]
-- columns: subscription_id, next_publish_time, next_seq, due_floor, paused, due_first, filter_changed_at
SELECT subscription_id, next_publish_time, next_seq, due_floor, paused, due_first, filter_changed_at
FROM cursors
WHERE shard_id = %(shard_id)s AND subscription_id = ANY (%(subscription_ids)s::int8[])
ORDER BY subscription_id
FOR UPDATE
