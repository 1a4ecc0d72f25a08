-- parameters: shard_id int8, subscription_ids int8[], next_publish_times timestamptz[], next_seqs int8[],
--     due_floors timestamptz[], due_firsts bool[]
UPDATE cursors AS c
SET next_publish_time = m.next_publish_time, next_seq = m.next_seq, due_floor = m.due_floor,
    due_first = m.due_first
FROM unnest(
    %(subscription_ids)s::int8[], %(next_publish_times)s::timestamptz[], %(next_seqs)s::int8[],
    %(due_floors)s::timestamptz[], %(due_firsts)s::bool[]
) AS m (subscription_id, next_publish_time, next_seq, due_floor, due_first)
WHERE c.shard_id = %(shard_id)s AND c.subscription_id = m.subscription_id
