-- Inserts rows for messages that no client has received, or not since they were brought back.  They are due now,
-- for the first time.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], seqs text[], counts int8[],
--     first_publish_times timestamptz[], last_publish_times timestamptz[], redriven bool[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, first_publish_time, last_publish_time, redriven
)
SELECT s.shard_id, a.subscription_id, a.attempt_id, 0, 'pending', 0, %(now)s, %(now)s,
       a.seqs::int8multirange, repeat('1', a.count::int4)::varbit, a.first_publish_time, a.last_publish_time,
       nullif(a.redriven, false)
FROM shards AS s, unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(seqs)s::text[], %(counts)s::int8[],
    %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[], %(redriven)s::bool[]
) AS a (subscription_id, attempt_id, seqs, count, first_publish_time, last_publish_time, redriven)
WHERE s.shard_id = %(shard_id)s
