-- Removes messages that are no longer outstanding from rows that hold ordering keys, without an ack; the delivery
-- attempts remain.  If a key waited only for these messages, the row is due now (`goes_on`), or once its
-- outstanding messages are acked (`without_retry`).
-- parameters: shard_id int8, now timestamptz, subscription_ids int8[], attempt_ids int8[], masks varbit[],
--     goes_on bool[], without_retry bool[]
UPDATE delivery_attempts AS d
SET open = d.open & ~r.mask,
    status = CASE WHEN r.goes_on THEN 'pending' ELSE d.status END,
    next_delivery_at = CASE WHEN r.goes_on THEN %(now)s ELSE d.next_delivery_at END,
    retry_at = CASE WHEN r.without_retry THEN NULL ELSE d.retry_at END
FROM unnest(
    %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(masks)s::varbit[], %(goes_on)s::bool[],
    %(without_retry)s::bool[]
) AS r (subscription_id, attempt_id, mask, goes_on, without_retry)
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = 0
