-- As insert_delivery_attempts, of many subscriptions without exactly-once delivery.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], attempt_numbers int8[],
--     ack_deadlines timestamptz[], seqs text[], open text[], first_publish_times timestamptz[],
--     last_publish_times timestamptz[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number,
    next_delivery_at, delivered_at, seqs, open, first_publish_time, last_publish_time
)
SELECT %(shard_id)s, a.subscription_id, a.attempt_id, 0, 'delivering', a.attempt_number,
       a.ack_deadline, %(now)s, a.seqs::int8multirange, a.open::varbit, a.first_publish_time, a.last_publish_time
FROM unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(attempt_numbers)s::int8[],
    %(ack_deadlines)s::timestamptz[], %(seqs)s::text[], %(open)s::text[],
    %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[]
) AS a (
    subscription_id, attempt_id, attempt_number, ack_deadline, seqs, open, first_publish_time, last_publish_time
)
