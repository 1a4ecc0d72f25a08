-- Inserts scheduled messages.  It runs after take_id_seqs.sql or take_new_sequences.sql in the same transaction,
-- and inserts nothing unless that statement has given out numbers (`flush`).
-- parameters: shard_id int8, count int8, accepted_at timestamptz, due_ats timestamptz[], sizes int8[],
--     ordering_keys text[], attributes packed jsonb[], data packed bytea[], ttls int8[], flush int8
INSERT INTO scheduled_messages (shard_id, id_seq, due_at, accepted_at, size, ordering_key, attributes, data, ttl)
SELECT s.shard_id, s.last_id_seq - %(count)s + m.number, m.due_at, %(accepted_at)s, m.size, m.ordering_key,
       m.attributes, m.data, m.ttl
FROM shards AS s,
     unnest(%(due_ats)s, %(sizes)s, %(ordering_keys)s, %(attributes)s, %(data)s, %(ttls)s)
         WITH ORDINALITY AS m (due_at, size, ordering_key, attributes, data, ttl, number)
WHERE s.shard_id = %(shard_id)s AND s.last_flush = %(flush)s
