-- The schedule of a project whose tick has been due for longest; until the end of the tick nobody else has it.  One that
-- another process has locked is passed by.
-- parameters: now timestamptz, project text, but text[]
-- columns: name, definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at, updated_at
SELECT name, definition::text AS definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at,
       updated_at
FROM schedules
WHERE next_at <= %(now)s AND split_part(name, '/schedules/', 1) = %(project)s AND name <> ALL(%(but)s)
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
