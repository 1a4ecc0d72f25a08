-- Appends batches of messages to the log of a shard.  It runs after take_sequences.sql in the same transaction, so
-- that it sees the head that this transaction has written.
--
-- * `attributes`, `data`: one element for each message, in order (`attributes` is null if no message has any).
-- * `lasts`, `counts`: a batch consists of the `counts` messages that end with the `lasts`-th one.
-- * `shared_attributes`: of each batch; null if no batch has any.
-- * `ttls`: the time to live of each batch, in microseconds (null: unlimited).
--
-- `ordering_keys` and `ttls` are empty if no batch has any; missing elements are null.
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
