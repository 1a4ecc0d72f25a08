-- Removes those of these messages that are still scheduled, so that they are never published.  Waits for
-- transactions that are publishing any of them.
-- parameters: shard_ids int8[], id_seqs int8[]
-- columns: shard_id, id_seq, accepted_at
DELETE FROM scheduled_messages AS m
USING (
    SELECT s.shard_id, s.id_seq
    FROM unnest(%(shard_ids)s::int8[], %(id_seqs)s::int8[]) AS w (shard_id, id_seq)
    JOIN scheduled_messages AS s ON s.shard_id = w.shard_id AND s.id_seq = w.id_seq
    ORDER BY s.shard_id, s.id_seq
    FOR UPDATE OF s
) AS p
WHERE m.shard_id = p.shard_id AND m.id_seq = p.id_seq
RETURNING m.shard_id, m.id_seq, m.accepted_at
