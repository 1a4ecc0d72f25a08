-- move_cursors, of one, where shards lie on nodes: planned in no time.
-- parameters: shard_id int8, subscription_ids int8, next_publish_times timestamptz, next_seqs int8,
--     due_floors timestamptz, due_firsts bool
UPDATE cursors
SET next_publish_time = %(next_publish_times)s, next_seq = %(next_seqs)s, due_floor = %(due_floors)s,
    due_first = %(due_firsts)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_ids)s
