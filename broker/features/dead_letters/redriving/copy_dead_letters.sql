-- Restores messages that the log no longer has from their dead letters, among the stragglers and without the
-- attributes that dead letters add.
-- parameters: shard_id int8, publish_times timestamptz[], seqs int8[], dead_letter_shards int8[],
--     dead_letter_publish_times timestamptz[], dead_letter_seqs int8[], added text[]
INSERT INTO straggler_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                               id_seqs)
SELECT %(shard_id)s, w.publish_time, w.seq, 1,
       octet_length(l.data) + CASE l.attributes WHEN '{}' THEN 0 ELSE octet_length(l.attributes::text) END,
       l.ordering_key, ARRAY[nullif(l.attributes, '{}')], ARRAY[l.data],
       (SELECT ARRAY[i.id_seq] FROM scheduled_ids AS i WHERE i.shard_id = %(shard_id)s AND i.seq = w.seq)
FROM unnest(
    %(publish_times)s::timestamptz[], %(seqs)s::int8[], %(dead_letter_shards)s::int8[],
    %(dead_letter_publish_times)s::timestamptz[], %(dead_letter_seqs)s::int8[]
) AS w (publish_time, seq, dead_letter_shard, dead_letter_publish_time, dead_letter_seq)
CROSS JOIN LATERAL (
    SELECT m.ordering_key, m.attributes - %(added)s::text[] AS attributes, m.data
    FROM messages AS m
    WHERE m.shard_id = w.dead_letter_shard
      AND m.publish_time = w.dead_letter_publish_time
      AND m.last_seq >= w.dead_letter_seq
      AND m.last_seq < w.dead_letter_seq + 1000
      AND m.seq = w.dead_letter_seq
    UNION ALL
    SELECT m.ordering_key, m.attributes - %(added)s::text[], m.data
    FROM straggler_messages AS m
    WHERE m.shard_id = w.dead_letter_shard
      AND m.publish_time = w.dead_letter_publish_time
      AND m.last_seq >= w.dead_letter_seq
      AND m.last_seq < w.dead_letter_seq + 1000
      AND m.seq = w.dead_letter_seq
    LIMIT 1
) AS l
ON CONFLICT DO NOTHING
