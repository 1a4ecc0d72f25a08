-- Returns rows of the journal of a subscription, in the order of their numbers.
-- parameters: subscription_id int8, after int8, until int8, since timestamptz, limit int8
-- columns: number, shard_id, time, event, attempt, seqs, principal, client, answer
SELECT number, shard_id, time, event, attempt, seqs::text AS seqs, principal, client, answer
FROM delivery_journal
WHERE subscription_id = %(subscription_id)s
  AND number > %(after)s
  AND number <= %(until)s
  AND time >= %(since)s
ORDER BY subscription_id, number
LIMIT %(limit)s
