-- Makes exhausted messages deliverable again, because there is no dead-letter topic any more.
-- parameters: shard_id int8, subscription_id int8, now timestamptz
UPDATE delivery_attempts
SET status = 'pending', next_delivery_at = %(now)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND status = 'exhausted'
