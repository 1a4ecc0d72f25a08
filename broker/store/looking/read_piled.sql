-- What a subscription was handed out in a shard, and waits for its keys, that is not settled; of at most `max_rows` rows.
-- parameters: shard_id int8, subscription_id int8, max_rows int8
-- columns: seqs, open, ordering_key, waiting
SELECT seqs::text AS seqs, open::text AS open, ordering_key,
       coalesce((waiting * '{[0,9223372036854775807)}')::text, '{}') AS waiting  -- which may have no end
FROM delivery_attempts
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND (bit_count(open) > 0 OR NOT isempty(waiting))
ORDER BY attempt_id, part
LIMIT %(max_rows)s
