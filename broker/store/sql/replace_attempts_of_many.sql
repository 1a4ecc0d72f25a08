-- As replace_attempts, of many subscriptions, whose rows are locked; none holds a key.
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
)
UPDATE delivery_attempts AS d
SET open = r.open, status = r.status, failure = CASE d.status WHEN 'delivering' THEN 'deadline' ELSE d.failure END,
    next_delivery_at = CASE r.status WHEN 'exhausted' THEN 'infinity' ELSE r.next_delivery_at END
FROM rest AS r
WHERE d.shard_id = %(shard_id)s
  AND d.subscription_id = r.subscription_id
  AND d.attempt_id = r.attempt_id
  AND d.part = r.part
  AND bit_count(r.open) > 0
