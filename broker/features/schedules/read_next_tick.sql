-- Returns when the next tick of any schedule is due, except of those in `but`.
-- parameters: but text[]
-- columns: next_at
SELECT next_at
FROM schedules
WHERE next_at IS NOT NULL AND name <> ALL(%(but)s)
ORDER BY next_at
LIMIT 1
