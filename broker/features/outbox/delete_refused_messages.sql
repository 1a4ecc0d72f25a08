-- Deletes refused messages that are old, and the oldest ones if there are too many.
DELETE FROM refused_messages
WHERE n IN (
    SELECT n
    FROM (SELECT n, refused_at, row_number() OVER (ORDER BY n DESC) AS age FROM refused_messages) AS counted
    WHERE refused_at < %(before)s OR age > %(most)s
    LIMIT %(limit)s
)
