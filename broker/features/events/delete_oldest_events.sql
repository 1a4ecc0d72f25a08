-- Deletes the events of a project, or its marks, that come before the newest `most`.
-- parameters: project text, is_mark bool, most int8
DELETE FROM project_events AS e
WHERE e.project = %(project)s AND e.is_mark = %(is_mark)s AND e.event_id <= (
    SELECT n.event_id
    FROM project_events AS n
    WHERE n.project = %(project)s AND n.is_mark = %(is_mark)s
    ORDER BY n.event_id DESC
    OFFSET %(most)s
    LIMIT 1
)
