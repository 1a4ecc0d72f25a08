-- Keeps the acknowledged messages of attempts with ordering keys that are about to be replaced, for a while, so
-- that repeated acks succeed (exactly-once delivery).
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], untils timestamptz[]
INSERT INTO delivery_attempts (
    shard_id, subscription_id, attempt_id, part, status, attempt_number, next_delivery_at, delivered_at,
    seqs, open, acked, first_publish_time, last_publish_time
)
SELECT d.shard_id, d.subscription_id, d.attempt_id, 1, 'pending', d.attempt_number, r.until, d.delivered_at,
       d.seqs, d.open & ~d.open, d.acked, d.first_publish_time, d.last_publish_time
FROM unnest(%(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(untils)s::timestamptz[])
    AS r (subscription_id, attempt_id, until)
JOIN delivery_attempts AS d
  ON d.shard_id = %(shard_id)s
 AND d.subscription_id = r.subscription_id
 AND d.attempt_id = r.attempt_id
 AND d.part = 0
WHERE bit_count(d.acked) > 0
