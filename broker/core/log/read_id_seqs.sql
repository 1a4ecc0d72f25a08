-- Returns the numbers that the ids of messages are derived from, for messages that were scheduled; others have no
-- row.
-- parameters: shard_ids int8[], seqs int8[]
-- columns: shard_id, seq, id_seq
SELECT p.shard_id, p.seq, i.id_seq
FROM unnest(%(shard_ids)s, %(seqs)s) AS p (shard_id, seq)
CROSS JOIN LATERAL (
    SELECT s.id_seq FROM scheduled_ids AS s WHERE s.shard_id = p.shard_id AND s.seq = p.seq LIMIT 1
) AS i
