-- Hands messages to the dead-letter forwarder that are the first of their ordering keys and wait for their next
-- delivery.  Returns their attempts.  A message that is outstanding again, or is not the first of its key any more,
-- stays as it is.  `positions`: the place of each message in its row, from 1.
-- parameters: shard_id int8, subscription_id int8, attempt_ids int8[], positions int8[], failure text,
--     now timestamptz
-- columns: attempt_id
WITH locked AS (
    SELECT d.subscription_id, d.attempt_id, d.part
    FROM delivery_attempts AS d
    JOIN unnest(%(attempt_ids)s::int8[], %(positions)s::int8[]) AS asked (attempt_id, position) USING (attempt_id)
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = %(subscription_id)s
      AND d.out_count IS NOT NULL
      AND position(B'1' IN d.open) = asked.position
      AND d.status <> 'exhausted'
      AND NOT (d.status = 'delivering' AND d.next_delivery_at > %(now)s)
    ORDER BY d.subscription_id, d.attempt_id, d.part
    FOR UPDATE OF d
)
UPDATE delivery_attempts AS d
SET status = 'exhausted', next_delivery_at = 'infinity', failure = %(failure)s
FROM locked
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = locked.subscription_id
  AND d.attempt_id = locked.attempt_id
  AND d.part = locked.part
RETURNING d.attempt_id
