-- Returns the backlog of a subscription in a shard that precedes its cursor: messages that were delivered and are
-- not settled, and messages in the log that wait behind these for their ordering key.  A range without an end is
-- cut off at the largest sequence.
SELECT seqs::text, open::text, ordering_key, coalesce((waiting * '{[0,9223372036854775807)}')::text, '{}'),
       first_publish_time, last_publish_time, coalesce(redriven, false)
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND (bit_count(open) > 0 OR NOT isempty(waiting))
ORDER BY attempt_id, part
