-- Returns the operations that run on a subscription.  `references` counts all of them.
SELECT name, count(*) OVER () AS "references"
FROM operations
WHERE target = %(subscription)s AND ended_at IS NULL
ORDER BY name
LIMIT %(most)s
