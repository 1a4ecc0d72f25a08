-- Stores the result of a step, in the transaction of the step.
-- parameters: name text, progress text, counts text, done int8, total int8, now timestamptz,
--     next_step_at timestamptz, ended bool
UPDATE operations
SET progress = %(progress)s::text::jsonb, counts = %(counts)s::text::jsonb, done = %(done)s,
    total = CASE WHEN %(ended)s THEN %(done)s ELSE greatest(%(total)s, %(done)s) END,
    is_estimate = is_estimate AND NOT %(ended)s,
    updated_at = %(now)s, next_step_at = %(next_step_at)s,
    ended_at = CASE WHEN %(ended)s THEN %(now)s END
WHERE name = %(name)s
