-- parameters: shard_id int8, id_seqs int8[], seqs int8[], publish_times timestamptz[], now timestamptz, by text, head
--     int8, states text[]
INSERT INTO retracted_messages (
    shard_id, id_seq, seq, publish_time, retracted_at, retracted_by, head, states
)
SELECT s.shard_id, r.id_seq, r.seq, r.publish_time, %(now)s, %(by)s, %(head)s, r.states::jsonb
FROM shards AS s, unnest(%(id_seqs)s::int8[], %(seqs)s::int8[], %(publish_times)s::timestamptz[], %(states)s::text[])
    AS r (id_seq, seq, publish_time, states)
WHERE s.shard_id = %(shard_id)s
