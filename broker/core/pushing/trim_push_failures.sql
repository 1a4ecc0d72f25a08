-- Deletes all but the newest `kept` failures of each subscription.
DELETE FROM push_failures AS f
USING (
    SELECT
        s.subscription_id,
        (
            SELECT k.failure_id
            FROM push_failures AS k
            WHERE k.subscription_id = s.subscription_id
            ORDER BY k.failure_id DESC
            OFFSET %(kept)s
            LIMIT 1
        ) AS newest_surplus
    FROM unnest(%(subscription_ids)s::bigint[]) AS s(subscription_id)
) AS surplus
WHERE f.subscription_id = surplus.subscription_id
  AND f.failure_id <= surplus.newest_surplus
