-- Returns the conditions that hold now in projects that want events.  Each part reads few rows, because resources
-- in order have none.  Conditions of the topic to which the events are published are left out.
WITH watched AS (
    SELECT split_part(project, '/', 2) AS project_id, project, event_topic
    FROM project_settings
    WHERE event_topic <> ''
)
SELECT w.project, CASE WHEN s.settings -> 'pushConfig' ? 'pushEndpoint' THEN 'pause' ELSE 'hold' END AS kind, s.name AS subject,
    true AS begins, p.paused_reason AS why
FROM push_states p
JOIN subscriptions s USING (subscription_id)
JOIN watched w ON w.project_id = split_part(s.name, '/', 2) AND w.event_topic <> s.topic
WHERE p.paused_reason <> ''
UNION ALL
SELECT w.project, 'schedule', s.name, true, t.reason
FROM watched w
JOIN schedules s ON s.name > w.project || '/schedules/' COLLATE "C" AND s.name < w.project || '/schedules0' COLLATE "C"
JOIN schedule_ticks t ON t.schedule = s.name AND t.number = s.ticks
WHERE s.last_outcome = 'REFUSED' AND s.next_at IS NOT NULL AND s.definition ->> 'topic' <> w.event_topic
UNION ALL
SELECT w.project, 'expiry', s.name, true,
    format('nobody has used it since %%s; it is deleted after %%s without use', to_char(
        s.last_active_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"'), s.expiration_ttl)
FROM watched w
JOIN subscriptions s ON split_part(s.name, '/', 2) = w.project_id AND w.event_topic <> s.topic
WHERE s.last_active_at + s.expiration_ttl - least(%(notice)s::interval, s.expiration_ttl / 2) <= %(now)s::timestamptz
UNION ALL
SELECT w.project, 'quota', concat_ws('/', w.project, 'quotas', b.quota, nullif(b.principal, '')),
    b.usage >= 0.98 * b.rate, format('%%s of %%s a second are used', round(b.usage), b.rate)
FROM watched w
JOIN quota_buckets b ON b.project = w.project
WHERE b.usage >= 0.8 * b.rate AND b.balanced_at > %(now)s::timestamptz - interval '15 seconds'
UNION ALL
SELECT w.project, 'disk', w.project || '/storage/tables', true,
    format('publishing is paused: the tables take %%s bytes, and the limit is %%s (BROKER_DATABASE_SIZE_MAX)',
        t.size_bytes, t.max_bytes)
FROM watched w, (
    SELECT size_bytes, max_bytes FROM table_sizes
    WHERE is_full AND measured_at > %(now)s::timestamptz - interval '2 minutes'
    ORDER BY max_bytes
    LIMIT 1
) t
