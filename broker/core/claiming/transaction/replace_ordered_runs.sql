-- Updates the rows of ordering keys in a claim, which holds their locks.  Either the next messages of the key are
-- delivered under a new attempt id, or messages that do not exist in the log any more are dropped and the others
-- wait.  Sequences before `waiting_froms` do not wait any more (null: no change).
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], new_attempt_ids int8[],
--     exactly_once bool[], statuses text[], next_delivery_ats timestamptz[], seqs text[], out_counts int8[],
--     attempt_numbers text[], waiting_froms int8[], first_publish_times timestamptz[],
--     last_publish_times timestamptz[]
WITH runs AS MATERIALIZED (
    SELECT r.subscription_id, r.attempt_id, r.new_attempt_id, r.exactly_once, r.status, r.next_delivery_at,
           r.seqs::int8multirange AS seqs, r.out_count, r.attempt_numbers::int4[] AS attempt_numbers, r.waiting_from,
           r.first_publish_time, r.last_publish_time
    FROM unnest(
        %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(new_attempt_ids)s::int8[], %(exactly_once)s::bool[],
        %(statuses)s::text[], %(next_delivery_ats)s::timestamptz[], %(seqs)s::text[], %(out_counts)s::int8[],
        %(attempt_numbers)s::text[], %(waiting_froms)s::int8[],
        %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[]
    ) AS r (subscription_id, attempt_id, new_attempt_id, exactly_once, status, next_delivery_at, seqs, out_count,
            attempt_numbers, waiting_from, first_publish_time, last_publish_time)
)
UPDATE delivery_attempts AS d
SET attempt_id = r.new_attempt_id,
    status = r.status,
    failure = NULL,
    attempt_number = coalesce(r.attempt_numbers[1], 0),
    next_delivery_at = r.next_delivery_at,
    delivered_at = %(now)s,
    seqs = r.seqs,
    open = repeat('1', cardinality(r.attempt_numbers))::varbit,
    acked = CASE WHEN r.exactly_once THEN repeat('0', cardinality(r.attempt_numbers))::varbit END,
    attempt_numbers = r.attempt_numbers,
    out_count = r.out_count,
    waiting = d.waiting * int8multirange(int8range(r.waiting_from, NULL)),
    retry_at = NULL,
    first_publish_time = r.first_publish_time,
    last_publish_time = r.last_publish_time
FROM runs AS r
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = 0
