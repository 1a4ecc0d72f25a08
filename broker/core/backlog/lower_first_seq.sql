-- Extends a subscription to messages that were published before it was created, from `seq` on.
-- parameters: shard_id int8, subscription_id int8, seq int8
UPDATE cursors
SET first_seq = %(seq)s
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND first_seq > %(seq)s
