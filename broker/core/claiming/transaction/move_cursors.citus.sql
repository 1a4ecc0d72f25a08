-- Moves the cursor of one subscription.  Citus hardly needs to plan a statement for one subscription
-- (docs/decisions/0059-fewer-hops-on-citus.md).
-- for one of: subscription_ids
-- parameters: shard_id int8, subscription_id int8, next_publish_time timestamptz, next_seq int8,
--     due_floor timestamptz, due_first bool
UPDATE cursors
SET next_publish_time = %(next_publish_time)s, next_seq = %(next_seq)s, due_floor = %(due_floor)s,
    due_first = %(due_first)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
