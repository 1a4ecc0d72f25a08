-- Inserts one delivery attempt, as a claim for a single pull does; insert_delivery_attempts.sql inserts several.
-- This one reads no table, and Citus plans it quickly on distributed tables; the other is planned for each shard of
-- the tables, every time.
-- parameters: shard_id int8, now timestamptz, subscription_ids int8, attempt_ids int8, attempt_numbers int8,
--     ack_deadlines timestamptz, exactly_once bool, seqs text, counts int8,
--     first_publish_times timestamptz, last_publish_times timestamptz
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number,
    next_delivery_at, delivered_at, seqs, open, acked, first_publish_time, last_publish_time
)
VALUES (
    %(shard_id)s, %(subscription_ids)s, %(attempt_ids)s, 0, 'delivering', %(attempt_numbers)s,
    %(ack_deadlines)s, %(now)s, (%(seqs)s)::int8multirange, repeat('1', (%(counts)s)::int4)::varbit,
    CASE WHEN %(exactly_once)s THEN repeat('0', (%(counts)s)::int4)::varbit END,
    %(first_publish_times)s, %(last_publish_times)s
)
