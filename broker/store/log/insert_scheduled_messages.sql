-- Runs after take_id_seqs in the same transaction, so it sees the number that this transaction wrote.
-- parameters: shard_id int8, count int8, accepted_at timestamptz, due_ats timestamptz[], sizes int8[],
--     ordering_keys text[], attributes packed jsonb[], data packed bytea[]
INSERT INTO scheduled_messages (shard_id, id_seq, due_at, accepted_at, size, ordering_key, attributes, data)
SELECT %(shard_id)s, s.last_id_seq - %(count)s + m.number, m.due_at, %(accepted_at)s, m.size, m.ordering_key,
       m.attributes, m.data
FROM shards AS s,
     unnest(%(due_ats)s, %(sizes)s, %(ordering_keys)s, %(attributes)s, %(data)s)
         WITH ORDINALITY AS m (due_at, size, ordering_key, attributes, data, number)
WHERE s.shard_id = %(shard_id)s AND s.open AND s.frozen_at IS NULL
