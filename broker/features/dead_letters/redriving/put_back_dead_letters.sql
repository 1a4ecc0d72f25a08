-- Stores messages as copy_dead_letters.sql does, after they were read from their dead letters.
-- parameters: shard_id int8, publish_times timestamptz[], seqs int8[], ordering_keys text[], attributes text[],
--     data packed bytea[]
INSERT INTO straggler_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                               id_seqs)
SELECT s.shard_id, w.publish_time, w.seq, 1,
       octet_length(w.data) + CASE w.attributes WHEN '{}' THEN 0 ELSE octet_length(w.attributes::jsonb::text) END,
       w.ordering_key, ARRAY[nullif(w.attributes::jsonb, '{}')], ARRAY[w.data],
       (SELECT ARRAY[i.id_seq] FROM scheduled_ids AS i WHERE i.shard_id = %(shard_id)s AND i.seq = w.seq)
FROM shards AS s, unnest(
    %(publish_times)s::timestamptz[], %(seqs)s::int8[], %(ordering_keys)s::text[], %(attributes)s::text[],
    %(data)s
) AS w (publish_time, seq, ordering_key, attributes, data)
WHERE s.shard_id = %(shard_id)s
ON CONFLICT DO NOTHING
