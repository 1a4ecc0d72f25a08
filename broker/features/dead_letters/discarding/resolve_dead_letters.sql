-- Records how dead letters were resolved, by whom, and the message that replaced each (0: none).  Returns fewer
-- rows than dead letters if another transaction has edited one.
-- parameters: shard_ids int8[], publish_times timestamptz[], seqs int8[], resolution text, now timestamptz,
--     resolved_by text, successor_shard int8, successor_seq int8
-- columns: seq
UPDATE dead_letters AS d
SET resolution = %(resolution)s, resolved_at = %(now)s, resolved_by = nullif(%(resolved_by)s, ''),
    successor_shard = nullif(%(successor_shard)s, 0), successor_seq = nullif(%(successor_seq)s, 0)
FROM unnest(%(shard_ids)s::int8[], %(publish_times)s::timestamptz[], %(seqs)s::int8[])
    AS w (shard_id, publish_time, seq)
WHERE d.shard_id = w.shard_id AND d.publish_time = w.publish_time AND d.seq = w.seq
  AND d.resolution IS DISTINCT FROM 'edited'
RETURNING d.seq
