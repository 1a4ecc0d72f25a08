-- What was acked under attempts of keys that are about to be replaced, kept for a while so that a repeated ack succeeds
-- (exactly-once delivery).
-- parameters: shard_id int8, subscription_id int8, until timestamptz, attempt_ids int8[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, acked, first_publish_time, last_publish_time
)
SELECT shard_id, subscription_id, attempt_id, 1, 'pending', attempt_number, %(until)s, delivered_at,
       seqs, open & ~open, acked, first_publish_time, last_publish_time
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND attempt_id = ANY (%(attempt_ids)s::int8[])
  AND part = 0
  AND bit_count(acked) > 0
