-- Locks an operation whose next step is due: of the project whose last step is the longest ago, the operation that
-- has waited longest.  No other process has it until the step ends.  Skips operations that another process has
-- locked, and those of a verb that this broker does not know.
-- parameters: now timestamptz, verbs text[]
-- columns: name, project, verb, target, started_by, request, progress, counts, done, total, is_estimate, created_at,
--     updated_at, next_step_at
WITH running AS (
    SELECT name, next_step_at, max(updated_at) OVER (PARTITION BY project) AS last_step_at
    FROM operations
    WHERE ended_at IS NULL
)
SELECT o.name, o.project, o.verb, o.target, o.started_by, o.request::text AS request, o.progress::text AS progress,
       o.counts::text AS counts, o.done, o.total, o.is_estimate, o.created_at, o.updated_at, o.next_step_at
FROM running
JOIN operations AS o USING (name)
WHERE running.next_step_at <= %(now)s
  AND o.ended_at IS NULL AND o.next_step_at <= %(now)s AND o.verb = ANY (%(verbs)s::text[])
ORDER BY running.last_step_at, running.next_step_at
LIMIT 1
FOR UPDATE OF o SKIP LOCKED
