-- Returns which of these sequences of a shard were retracted.
-- parameters: shard_id int8, seqs int8[]
-- columns: seq
SELECT w.seq
FROM unnest(%(seqs)s::int8[]) AS w (seq)
WHERE EXISTS (SELECT FROM retracted_messages AS r WHERE r.shard_id = %(shard_id)s AND r.seq = w.seq)
