DELETE FROM breaker_changes AS c
USING (
    SELECT
        s.subscription_id,
        (
            SELECT k.change_id
            FROM breaker_changes AS k
            WHERE k.subscription_id = s.subscription_id
            ORDER BY k.change_id DESC
            OFFSET %(kept)s
            LIMIT 1
        ) AS newest_surplus
    FROM unnest(%(subscription_ids)s::bigint[]) AS s(subscription_id)
) AS surplus
WHERE c.subscription_id = surplus.subscription_id
  AND c.change_id <= surplus.newest_surplus
