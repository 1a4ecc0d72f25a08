-- When the next tick of any schedule is due, of what nobody else may be at.
-- columns: next_at
SELECT next_at
FROM schedules
WHERE next_at IS NOT NULL
ORDER BY next_at
LIMIT 1
