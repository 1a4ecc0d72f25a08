-- Deletes the records of dead letters whose messages were redriven.  Returns fewer rows than dead letters if
-- another transaction has changed one.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[]
-- columns: seq
DELETE FROM dead_letters AS d
USING unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
    AS w (shard_id, publish_time, seq)
WHERE d.shard_id = w.shard_id AND d.publish_time = w.publish_time AND d.seq = w.seq
  AND d.resolution IS DISTINCT FROM 'edited'
RETURNING d.seq
