-- Letters of a partition that nobody has dealt with, and that are kept.
SELECT count(*)
FROM dead_letters
WHERE publish_time >= %(start)s
  AND publish_time < %(end)s
  AND publish_time >= %(kept_since)s
  AND resolution IS NULL
