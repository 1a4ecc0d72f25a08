-- Locks and returns a schedule that is to tick now.  The lock excludes other processes until the tick is done.
-- parameters: name text
-- columns: name, definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at, updated_at
SELECT name, definition::text AS definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at,
       updated_at
FROM schedules
WHERE name = %(name)s
FOR UPDATE
