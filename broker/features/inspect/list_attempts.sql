-- Returns rows of delivered messages, from one on, in the order of their ids, without locks.
-- parameters: shard_id int8, subscription_id int8, attempt_id int8, part int8, max_rows int8
-- columns: attempt_id, part, status, attempt_number, next_delivery_at, delivered_at, seqs, open, first_publish_time,
--     last_publish_time, ordering_key, out_count, attempt_numbers, waiting, waits, redriven
SELECT attempt_id, part, status, attempt_number,
       CASE WHEN status <> 'exhausted' THEN next_delivery_at END AS next_delivery_at,  -- that is infinity
       delivered_at, seqs::text AS seqs, open::text AS open, first_publish_time, last_publish_time, ordering_key,
       out_count, attempt_numbers::text AS attempt_numbers, NULL::text AS waiting,
       coalesce(NOT isempty(waiting), false) AS waits, coalesce(redriven, false) AS redriven
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND (attempt_id, part) >= (%(attempt_id)s, %(part)s)
ORDER BY attempt_id, part
LIMIT %(max_rows)s
