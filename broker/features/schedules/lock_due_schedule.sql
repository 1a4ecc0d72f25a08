-- Locks and returns the schedule of a project whose tick has been due for longest.  The lock excludes other
-- processes until the tick is done.  Schedules that another process has locked are skipped.
-- parameters: now timestamptz, project text, but text[]
-- columns: name, definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at, updated_at
SELECT name, definition::text AS definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at,
       updated_at
FROM schedules
WHERE next_at <= %(now)s AND split_part(name, '/schedules/', 1) = %(project)s AND name <> ALL(%(but)s)
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
