-- The claim lock, in a statement of its own: what is read next must have a later snapshot than the lock [T].
-- parameters: shard_id int8, subscription_id int8
SELECT next_publish_time, next_seq, due_floor
FROM cursors
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
FOR UPDATE
