-- Where a subscription began in a shard.
SELECT first_seq FROM cursors WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s
