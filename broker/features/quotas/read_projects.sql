-- The projects that have topics, or subscriptions of topics that were deleted.
-- columns: project
SELECT substring(name FROM '^projects/[^/]+') AS project FROM topics
UNION
SELECT substring(name FROM '^projects/[^/]+') FROM subscriptions WHERE topic = '_deleted-topic_'
