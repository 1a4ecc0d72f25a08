-- Appends messages as append_messages.sql does, if take_new_sequences.sql has given out sequences in this
-- transaction.
-- parameters: shard_id int8, count int8, lasts int8[], counts int8[], sizes int8[], ordering_keys text[],
--     attributes packed jsonb[], data packed bytea[], shared_attributes packed jsonb[],
--     ttls int8[], flush int8
INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                             shared_attributes, expires_at)
SELECT s.shard_id, s.last_publish_time, s.head - %(count)s + b.last, b.count, b.size, b.ordering_key,
       (%(attributes)s)[(b.last - b.count + 1)::int4:b.last::int4],
       (%(data)s)[(b.last - b.count + 1)::int4:b.last::int4], b.shared,
       s.last_publish_time + b.ttl * interval '1 microsecond'
FROM shards AS s,
     unnest(%(lasts)s, %(counts)s, %(sizes)s, %(ordering_keys)s, %(shared_attributes)s, %(ttls)s)
         AS b (last, count, size, ordering_key, shared, ttl)
WHERE s.shard_id = %(shard_id)s AND s.last_flush = %(flush)s
