-- Takes rows out of what is staged.  Fewer than there were asked for: another process has taken some, or is at work for
-- the same topic or subscription; what two of them append side by side could stand in the wrong order.  Whoever waited
-- for the lock would look with an old snapshot, so nobody waits: `pg_try`.
-- parameters: ns int8[], whose text
-- columns: n
DELETE FROM staged
WHERE n = ANY(%(ns)s)
  AND (SELECT pg_try_advisory_xact_lock(hashtextextended(concat(current_schema(), '/', %(whose)s), 4711007)))
RETURNING n
