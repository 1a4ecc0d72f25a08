-- Returns the projects that have topics, or subscriptions of deleted topics.
-- columns: project
SELECT substring(name FROM '^projects/[^/]+') AS project FROM topics
UNION
SELECT substring(name FROM '^projects/[^/]+') FROM subscriptions WHERE topic = '_deleted-topic_'
