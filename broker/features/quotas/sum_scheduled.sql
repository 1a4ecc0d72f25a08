-- Returns the bytes of scheduled messages in shards after a number in each; at most `limit` messages of each shard
-- are read.  It reads the sizes of messages, not their bodies.
-- parameters: shard_ids int8[], id_seqs int8[], limit int8
-- columns: shard_id, size, messages, id_seq
SELECT p.shard_id, sum(w.size)::int8 AS size, count(*) AS messages, max(w.id_seq) AS id_seq
FROM unnest(%(shard_ids)s, %(id_seqs)s) AS p (shard_id, id_seq)
CROSS JOIN LATERAL (
    SELECT m.id_seq, m.size
    FROM scheduled_messages AS m
    WHERE m.shard_id = p.shard_id AND m.id_seq > p.id_seq
    ORDER BY m.id_seq
    LIMIT %(limit)s
) AS w
GROUP BY p.shard_id
