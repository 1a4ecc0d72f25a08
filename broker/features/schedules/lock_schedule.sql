-- A schedule that is to tick now; until the end of the tick nobody else has it.
-- parameters: name text
-- columns: name, definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at, updated_at
SELECT name, definition::text AS definition, anchor, next_at, paused, ticks, last_outcome, created_by, created_at,
       updated_at
FROM schedules
WHERE name = %(name)s
FOR UPDATE
