-- Runs after take_sequences in the same transaction, so it sees the head that this transaction wrote.
-- ordering_keys and attributes may be shorter than data: the rest is NULL.
-- parameters: shard_id int8, count int8, ordering_keys packed text[], attributes packed jsonb[], data packed
--     bytea[]
INSERT INTO messages (shard_id, publish_time, seq, ordering_key, attributes, data)
SELECT %(shard_id)s, s.last_publish_time, s.head - %(count)s + m.ordinal,
       m.ordering_key, coalesce(m.attributes, '{}'), m.data
FROM shards AS s,
     unnest(%(ordering_keys)s, %(attributes)s, %(data)s)
         WITH ORDINALITY AS m (ordering_key, attributes, data, ordinal)
WHERE s.shard_id = %(shard_id)s AND s.open
