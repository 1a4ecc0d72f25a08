-- Inserts expired messages in rows of their own, which are exhausted from the start and so left to the dead-letter
-- forwarder.  The rows have no ordering key, because these messages block no others.
-- parameters: shard_id int8, now timestamptz, failure text, subscription_ids int8[], attempt_ids int8[],
--     attempt_numbers int8[], seqs text[], counts int8[], first_publish_times timestamptz[],
--     last_publish_times timestamptz[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs, open,
    first_publish_time, last_publish_time, failure
)
SELECT s.shard_id, a.subscription_id, a.attempt_id, 0, 'exhausted', a.attempt_number, 'infinity', %(now)s,
       a.seqs::int8multirange, repeat('1', a.count::int4)::varbit, a.first_publish_time, a.last_publish_time,
       %(failure)s
FROM shards AS s, unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(attempt_numbers)s::int8[], %(seqs)s::text[],
    %(counts)s::int8[], %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[]
) AS a (subscription_id, attempt_id, attempt_number, seqs, count, first_publish_time, last_publish_time)
WHERE s.shard_id = %(shard_id)s
