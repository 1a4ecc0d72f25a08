-- Counts the dead letters since the last run in projects that want events.
--
-- A dead letter that is committed later than its publish time plus the margin is not counted: its statement has
-- timed out by then.  Neither are dead letters of a subscription that was deleted: the record of what was reported
-- of it is deleted as well, so each run would report a first one.
WITH watched AS (
    SELECT project, split_part(project, '/', 2) AS project_id, event_topic, dead_letters_until
    FROM project_settings
    WHERE event_topic <> ''
    ORDER BY project
    FOR UPDATE
),
looked AS (
    UPDATE project_settings p
    SET dead_letters_until = %(until)s
    FROM watched w
    WHERE p.project = w.project AND w.dead_letters_until < %(until)s::timestamptz
),
letters AS MATERIALIZED (  -- distributed tables cannot be joined with local ones of the coordinator
    SELECT subscription, source_topic, publish_time, reason
    FROM dead_letters
    WHERE publish_time >= (SELECT min(dead_letters_until) FROM watched) AND publish_time < %(until)s::timestamptz
)
SELECT w.project, d.subscription AS subject, count(*) AS amount,
    (array_agg(d.reason ORDER BY d.publish_time DESC))[1] AS why
FROM letters d
JOIN watched w
    ON split_part(d.subscription, '/', 2) = w.project_id
    AND d.publish_time >= w.dead_letters_until
    AND d.source_topic <> w.event_topic
    AND EXISTS (SELECT FROM subscriptions AS s WHERE s.name = d.subscription)
GROUP BY w.project, d.subscription
