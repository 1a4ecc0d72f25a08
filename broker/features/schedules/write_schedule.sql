-- Updates a schedule after a tick, in the transaction of the tick.
-- parameters: name text, next_at timestamptz, ends bool, ticks int8, last_outcome text
UPDATE schedules
SET next_at = CASE WHEN NOT %(ends)s THEN %(next_at)s END, ticks = %(ticks)s, last_outcome = %(last_outcome)s
WHERE name = %(name)s
