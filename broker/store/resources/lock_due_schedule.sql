-- A schedule whose tick is due, the one that waits longest; until the end of the tick nobody else has it.  One that
-- another process is at is passed by.
-- parameters: now timestamptz, but text[]
-- columns: name, definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at, updated_at
SELECT name, definition::text AS definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at,
       updated_at
FROM schedules
WHERE next_at <= %(now)s AND name <> ALL(%(but)s)
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
