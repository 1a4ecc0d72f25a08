-- Inserts the parts that modify_ack_deadline.sql splits off rows, for distributed tables, where that statement
-- cannot insert them itself.  `seqs` and the publish times are those of the original row.
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], parts int8[], statuses text[],
--     failures text[], attempt_numbers int8[], next_delivery_ats timestamptz[], delivered_ats timestamptz[],
--     seqs text[], open text[], acked text[], first_publish_times timestamptz[], last_publish_times timestamptz[],
--     redriven bool[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, failure, attempt_number, next_delivery_at, delivered_at,
    seqs, open, acked, first_publish_time, last_publish_time, redriven
)
SELECT s.shard_id, a.subscription_id, a.attempt_id, a.part, a.status, a.failure, a.attempt_number,
       coalesce(a.next_delivery_at, 'infinity'), a.delivered_at, a.seqs::int8multirange, a.open::varbit,
       a.acked::varbit, a.first_publish_time, a.last_publish_time, nullif(a.redriven, false)
FROM shards AS s, unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(parts)s::int8[], %(statuses)s::text[],
    %(failures)s::text[], %(attempt_numbers)s::int8[], %(next_delivery_ats)s::timestamptz[],
    %(delivered_ats)s::timestamptz[], %(seqs)s::text[], %(open)s::text[], %(acked)s::text[],
    %(first_publish_times)s::timestamptz[], %(last_publish_times)s::timestamptz[], %(redriven)s::bool[]
) AS a (subscription_id, attempt_id, part, status, failure, attempt_number, next_delivery_at, delivered_at, seqs,
        open, acked, first_publish_time, last_publish_time, redriven)
WHERE s.shard_id = %(shard_id)s
