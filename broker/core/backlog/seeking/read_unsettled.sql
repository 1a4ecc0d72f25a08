-- Returns the messages of a subscription in a shard that were delivered and are not settled.
SELECT seqs::text, open::text, ordering_key IS NOT NULL
FROM delivery_attempts
WHERE shard_id = %(shard_id)s AND subscription_id = %(subscription_id)s AND bit_count(open) > 0
