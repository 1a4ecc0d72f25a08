-- Returns dead-letter policies in projects that want events whose topic is missing, or belongs to another project,
-- which may deny access.  Subscriptions of the topic to which the events are published are left out.
SELECT w.project, s.name AS subscription, s.dead_letter_topic AS topic, t.topic_id IS NOT NULL AS has_topic
FROM project_settings w
JOIN subscriptions s ON split_part(s.name, '/', 2) = split_part(w.project, '/', 2) AND w.event_topic <> s.topic
LEFT JOIN topics t ON t.name = s.dead_letter_topic
WHERE w.event_topic <> '' AND s.dead_letter_topic IS NOT NULL AND NOT s.detached
    AND (t.topic_id IS NULL OR split_part(s.dead_letter_topic, '/', 2) <> split_part(w.project, '/', 2))
