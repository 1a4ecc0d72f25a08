-- Gives up the first message of an ordering key that came back and waits for its next delivery, for the dead-letter
-- forwarder; returns its row.  Nothing changes if the message is out again, or is not the first of its key any more.
-- parameters: shard_id int8, subscription_id int8, attempt_id int8, position int8, failure text, now timestamptz
UPDATE delivery_attempts
SET status = 'exhausted', next_delivery_at = 'infinity', failure = %(failure)s
WHERE shard_id = %(shard_id)s
  AND subscription_id = %(subscription_id)s
  AND attempt_id = %(attempt_id)s
  AND out_count IS NOT NULL
  AND position(B'1' IN open) = %(position)s
  AND status <> 'exhausted'
  AND NOT (status = 'delivering' AND next_delivery_at > %(now)s)
RETURNING attempt_id
