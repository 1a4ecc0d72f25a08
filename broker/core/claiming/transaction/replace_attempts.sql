-- Writes what is left of attempts after a claim, a seek or the removal of a dead letter.  The caller holds their
-- locks, so nothing races with it.
--
-- A row without bits is deleted, unless it has an ordering key.  A row is updated if only some of its messages were
-- taken, or if it waits for its retry delay.  The failure of a row that was being delivered is 'deadline', because
-- its deadline has passed.
-- parameters: shard_id int8, subscription_ids int8[], attempt_ids int8[], parts int8[], open text[],
--     statuses text[], next_delivery_ats timestamptz[]
WITH rest AS MATERIALIZED (
    SELECT r.subscription_id, r.attempt_id, r.part, r.open::varbit AS open, r.status, r.next_delivery_at
    FROM unnest(
        %(subscription_ids)s::int8[], %(attempt_ids)s::int8[], %(parts)s::int8[], %(open)s::text[],
        %(statuses)s::text[], %(next_delivery_ats)s::timestamptz[]
    ) AS r (subscription_id, attempt_id, part, open, status, next_delivery_at)
),
finished AS (
    DELETE FROM delivery_attempts AS d
    USING rest AS r
    WHERE d.shard_id = %(shard_id)s
      AND d.subscription_id = r.subscription_id
      AND d.attempt_id = r.attempt_id
      AND d.part = r.part
      AND bit_count(r.open) = 0
      AND d.ordering_key IS NULL
)
UPDATE delivery_attempts AS d
SET open = r.open, status = r.status,
    failure = CASE WHEN d.status = 'delivering' THEN 'deadline' ELSE d.failure END,
    next_delivery_at = CASE WHEN r.status = 'exhausted' THEN 'infinity' ELSE r.next_delivery_at END
FROM rest AS r
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = r.part
  AND (bit_count(r.open) > 0 OR d.ordering_key IS NOT NULL)
