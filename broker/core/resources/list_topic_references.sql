-- Returns the resources that refer to a topic, by name: its subscriptions and snapshots, and what publishes to it
-- without a caller.  `references` counts all of them.
SELECT r.name, r.referrer, count(*) OVER () AS "references"
FROM (
    SELECT s.name, 'SUBSCRIPTION' AS referrer
    FROM subscriptions AS s
    WHERE s.topic_id = %(topic_id)s AND NOT s.detached
    UNION ALL
    SELECT n.name, 'SNAPSHOT'
    FROM snapshots AS n
    WHERE n.topic_id = %(topic_id)s AND n.expire_time > %(now)s
    UNION ALL
    SELECT d.name, 'DEAD_LETTER_POLICY'
    FROM subscriptions AS d
    WHERE d.dead_letter_topic = %(topic)s AND NOT d.detached
    UNION ALL
    SELECT c.name, 'SCHEDULE'
    FROM schedules AS c
    WHERE c.definition ->> 'topic' = %(topic)s AND (c.paused OR c.next_at IS NOT NULL)
    UNION ALL
    SELECT e.project, 'EVENTS'
    FROM project_settings AS e
    WHERE e.event_topic = %(topic)s
    UNION ALL
    SELECT o.name, 'OPERATION'
    FROM operations AS o
    WHERE (o.target = %(topic)s OR o.request ->> 'targetTopic' = %(topic)s) AND o.ended_at IS NULL
) AS r
ORDER BY r.name COLLATE "C", r.referrer
LIMIT %(most)s
