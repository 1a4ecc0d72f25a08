-- Inserts rows for the first messages of ordering keys that had none outstanding.  From now on the later messages
-- of each key wait.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], ordering_keys text[],
--     ack_deadlines timestamptz[], exactly_once bool[], seqs text[], counts int8[],
--     first_publish_times timestamptz[], last_publish_times timestamptz[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, acked, first_publish_time, last_publish_time, ordering_key, out_count, attempt_numbers, waiting
)
SELECT s.shard_id, a.subscription_id, a.attempt_id, 0, 'delivering', 1, a.ack_deadline, %(now)s,
       a.seqs::int8multirange, repeat('1', a.count::int4)::varbit,
       CASE WHEN a.exactly_once THEN repeat('0', a.count::int4)::varbit END,
       a.first_publish_time, a.last_publish_time, a.ordering_key, a.count,
       array_fill(1, ARRAY[a.count::int4]), int8multirange(int8range(upper(a.seqs::int8multirange), NULL))
FROM shards AS s, unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(ordering_keys)s::text[],
    %(ack_deadlines)s::timestamptz[], %(exactly_once)s::bool[], %(seqs)s::text[], %(counts)s::int8[],
    %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[]
) AS a (
    subscription_id, attempt_id, ordering_key, ack_deadline, exactly_once, seqs, count,
    first_publish_time, last_publish_time
)
WHERE s.shard_id = %(shard_id)s
