-- Records the sequences that scheduled messages got when they were published.  It runs after take_sequences.sql in
-- the same transaction.
-- parameters: shard_id int8, count int8, id_seqs int8[]
INSERT INTO scheduled_ids (shard_id, id_seq, seq, publish_time)
SELECT s.shard_id, m.id_seq, s.head - %(count)s + m.number, s.last_publish_time
FROM shards AS s, unnest(%(id_seqs)s) WITH ORDINALITY AS m (id_seq, number)
WHERE s.shard_id = %(shard_id)s AND s.open
