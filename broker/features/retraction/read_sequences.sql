-- Returns the sequences of messages that were scheduled and have been published since, by the sequences in their
-- ids.
-- parameters: shard_ids int8[], id_seqs int8[]
-- columns: shard_id, id_seq, seq
SELECT i.shard_id, i.id_seq, i.seq
FROM unnest(%(shard_ids)s::int8[], %(id_seqs)s::int8[]) AS w (shard_id, id_seq)
JOIN scheduled_ids AS i ON i.shard_id = w.shard_id AND i.id_seq = w.id_seq
