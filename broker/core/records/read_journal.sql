-- Returns the events of a message for a subscription, the newest first.
-- parameters: shard_id int8, subscription_id int8, seq int8, bucket int8, limit int8
-- columns: time, event, attempt, principal, client, answer
SELECT time, event, attempt, principal, client, answer
FROM delivery_journal
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND bucket IN (-1, %(bucket)s)
  AND seqs @> %(seq)s::int8
ORDER BY number DESC
LIMIT %(limit)s
