-- When there is something to do next, of what nobody else may be at.
-- columns: next_step_at
SELECT next_step_at
FROM operations
WHERE ended_at IS NULL
ORDER BY next_step_at
LIMIT 1
