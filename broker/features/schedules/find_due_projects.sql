-- Returns projects, except those in `known`, that have a due schedule: those of the schedules that have been due
-- for longest.
-- parameters: now timestamptz, known text[], but text[], most int8
-- columns: project
SELECT DISTINCT project
FROM (
    SELECT split_part(name, '/schedules/', 1) AS project
    FROM schedules
    WHERE next_at <= %(now)s AND split_part(name, '/schedules/', 1) <> ALL(%(known)s) AND name <> ALL(%(but)s)
    ORDER BY next_at
    LIMIT %(most)s
) AS due
