-- Returns the first sequence of a shard that belongs to a subscription.
SELECT first_seq FROM cursors WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
