-- Runs after take_sequences in the same transaction, so it sees the head that this transaction wrote.
-- `attributes` and `data` have an element for each message, in order (`attributes` is null if none has any); a batch
-- is the `counts` messages up to the `lasts`-th of them.  `shared_attributes`: of each batch, null if none has any.  For
-- `ttls` microseconds those of each are delivered (null: for ever).  `ordering_keys` and `ttls` are empty if none has
-- any: what is not there is null.
-- parameters: shard_id int8, count int8, lasts int8[], counts int8[], sizes int8[], ordering_keys text[],
--     attributes packed jsonb[], data packed bytea[], shared_attributes packed jsonb[],
--     ttls int8[]
INSERT INTO message_batches (shard_id, publish_time, last_seq, count, size, ordering_key, attributes, data,
                             shared_attributes, expires_at)
SELECT s.shard_id, s.last_publish_time, s.head - %(count)s + b.last, b.count, b.size, b.ordering_key,
       (%(attributes)s)[(b.last - b.count + 1)::int4:b.last::int4],
       (%(data)s)[(b.last - b.count + 1)::int4:b.last::int4], b.shared,
       s.last_publish_time + b.ttl * interval '1 microsecond'
FROM shards AS s,
     unnest(%(lasts)s, %(counts)s, %(sizes)s, %(ordering_keys)s, %(shared_attributes)s, %(ttls)s)
         AS b (last, count, size, ordering_key, shared, ttl)
WHERE s.shard_id = %(shard_id)s AND s.open
