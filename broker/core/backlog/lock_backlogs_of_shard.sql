-- Locks the cursors of a shard as lock_backlogs.sql does: of some subscriptions, or of all if `subscription_ids` is
-- empty.
-- parameters: shard_id int8, subscription_ids int8[]
-- columns: shard_id, subscription_id, next_publish_time, next_seq, due_floor, first_seq
SELECT c.shard_id, c.subscription_id, c.next_publish_time, c.next_seq, c.due_floor, c.first_seq
FROM cursors AS c
WHERE c.shard_id = %(shard_id)s
  AND (cardinality(%(subscription_ids)s::int8[]) = 0 OR c.subscription_id = ANY (%(subscription_ids)s::int8[]))
ORDER BY c.subscription_id
FOR UPDATE OF c
