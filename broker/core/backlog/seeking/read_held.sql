-- What a subscription has of a shard beside what its cursor has not passed: what it was handed out, and what waits behind
-- that in the log for its key.  A range that has no end ends with the sequences.
SELECT seqs::text, open::text, ordering_key, coalesce((waiting * '{[0,9223372036854775807)}')::text, '{}'),
       first_publish_time, last_publish_time, coalesce(redriven, false)
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND (bit_count(open) > 0 OR NOT isempty(waiting))
ORDER BY attempt_id, part
