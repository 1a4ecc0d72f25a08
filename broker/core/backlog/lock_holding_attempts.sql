-- Locks and returns the rows that hold any of these sequences, and the rows of these ordering keys, in which the
-- sequences may be waiting or are about to wait.
--
-- The rows are locked in key order, as everywhere, and by one statement: locking more rows later that precede these
-- in key order could deadlock with an ack.  For exhausted rows, which are never due, `next_delivery_at` is the time
-- of the delivery.
-- parameters: shard_id int8, subscription_ids int8[], seqs text, ordering_keys text[]
-- columns: subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, seqs, open, first_publish_time,
--     last_publish_time, ordering_key, out_count, attempt_numbers, waiting, redriven
SELECT d.subscription_id, d.attempt_id, d.part, d.status, d.attempt_number,
       CASE d.status WHEN 'exhausted' THEN d.delivered_at ELSE d.next_delivery_at END AS next_delivery_at,
       d.seqs::text AS seqs, d.open::text AS open, d.first_publish_time, d.last_publish_time, d.ordering_key,
       d.out_count, d.attempt_numbers::text AS attempt_numbers,
       (d.waiting * %(seqs)s::text::int8multirange)::text AS waiting,
       coalesce(d.redriven, false) AS redriven
FROM delivery_attempts AS d
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = ANY (%(subscription_ids)s::int8[])
  AND (
      d.seqs && %(seqs)s::text::int8multirange
      OR d.ordering_key = ANY (%(ordering_keys)s::text[])
  )
ORDER BY d.subscription_id, d.attempt_id, d.part
FOR UPDATE
