-- Counts the dead letters of a partition that are unresolved and kept.
SELECT count(*)
FROM dead_letters
WHERE publish_time >= %(start)s
  AND publish_time < %(end)s
  AND publish_time >= %(kept_since)s
  AND resolution IS NULL
