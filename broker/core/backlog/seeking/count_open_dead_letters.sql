-- Counts the unresolved dead letters of a subscription, up to `most`.
SELECT count(*)
FROM (
    SELECT 1 AS one
    FROM dead_letters
    WHERE source_shard_id = ANY (%(shard_ids)s::int8[])
      AND subscription_id = %(subscription_id)s
      AND resolution IS NULL
    LIMIT %(most)s
) AS d
