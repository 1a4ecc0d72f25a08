-- Counts the messages of attempts with publish times in a partition.
SELECT coalesce(sum(length(open)), 0)
FROM delivery_attempts
WHERE first_publish_time < %(end)s AND last_publish_time >= %(start)s
