-- Locks and returns attempts that wait to be dead-lettered.  Skips those that another forwarder has locked.
-- parameters: shard_id int8, subscription_id int8, max_rows int8
-- columns: attempt_id, part, status, attempt_number, next_delivery_at, seqs, open, first_publish_time,
--     last_publish_time, ordering_key, attempt_numbers, failure
SELECT attempt_id, part, status, attempt_number, delivered_at AS next_delivery_at,  -- itself it is infinity
       seqs::text AS seqs, open::text AS open, first_publish_time, last_publish_time,
       ordering_key, attempt_numbers::text AS attempt_numbers, failure
FROM delivery_attempts
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND status = 'exhausted'
ORDER BY attempt_id, part
LIMIT %(max_rows)s
FOR UPDATE SKIP LOCKED
