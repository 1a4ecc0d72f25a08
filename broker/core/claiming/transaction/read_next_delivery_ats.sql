-- Returns when the next redelivery of each subscription is due, after those that are due now.
-- parameters: shard_id int8, subscription_ids int8[], now timestamptz
-- columns: subscription_id, next_delivery_at
SELECT w.subscription_id, d.next_delivery_at
FROM unnest(%(subscription_ids)s::int8[]) AS w (subscription_id)
CROSS JOIN LATERAL (
    SELECT a.next_delivery_at
    FROM delivery_attempts AS a
    WHERE a.shard_id = %(shard_id)s
      AND a.subscription_id = w.subscription_id
      AND a.next_delivery_at > %(now)s
      AND a.next_delivery_at < 'infinity'  -- exhausted: left to the dead-letter forwarder
    ORDER BY a.next_delivery_at
    LIMIT 1
) AS d
