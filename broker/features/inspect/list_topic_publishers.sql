-- Returns what publishes to a topic without a caller, by name, after the name `after`.
SELECT p.name, p.kind, p.created_by, p.is_paused
FROM (
    SELECT s.name, 'DEAD_LETTER_POLICY' AS kind, '' AS created_by, false AS is_paused
    FROM subscriptions s
    WHERE s.dead_letter_topic = %(topic)s AND NOT s.detached
    UNION ALL
    SELECT s.name, 'SCHEDULE', s.created_by, s.paused
    FROM schedules s
    WHERE s.definition ->> 'topic' = %(topic)s AND (s.paused OR s.next_at IS NOT NULL)
    UNION ALL
    SELECT o.name, 'OPERATION', o.started_by, false
    FROM operations o
    WHERE o.request ->> 'targetTopic' = %(topic)s AND o.ended_at IS NULL
    UNION ALL
    SELECT e.project || '/settings', 'EVENTS', '', false
    FROM project_settings e
    WHERE e.event_topic = %(topic)s
) AS p
WHERE p.name > %(after)s COLLATE "C"
ORDER BY p.name COLLATE "C"
LIMIT %(size)s
