-- Returns the retractions of messages, each found by the sequence in its id or by its sequence in the log; `number`
-- is the number that was given for the message.
-- parameters: shard_ids int8[], id_seqs int8[], seqs int8[], numbers int8[]
-- columns: number, shard_id, id_seq, seq, publish_time, retracted_at, retracted_by, head, states,
--     replacement_shard_id, replacement_id_seq, cancelled
SELECT w.number, r.shard_id, r.id_seq, r.seq, r.publish_time, r.retracted_at, r.retracted_by, r.head,
       r.states::text AS states, r.replacement_shard_id, r.replacement_id_seq, r.cancelled
FROM unnest(%(shard_ids)s::int8[], %(id_seqs)s::int8[], %(seqs)s::int8[], %(numbers)s::int8[])
    AS w (shard_id, id_seq, seq, number)
CROSS JOIN LATERAL (
    (SELECT * FROM retracted_messages AS a WHERE a.shard_id = w.shard_id AND a.id_seq = w.id_seq)
    UNION ALL
    (SELECT * FROM retracted_messages AS b WHERE b.shard_id = w.shard_id AND b.seq = w.seq)
    LIMIT 1
) AS r
