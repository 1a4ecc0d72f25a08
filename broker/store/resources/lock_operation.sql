-- An operation whose next step is due: of the project whose last step is longest ago the one that waits longest.  Until
-- the end of the step nobody else has it.  One that another process is at is passed by, and so is one of a verb that
-- this broker does not know.
-- parameters: now timestamptz, verbs text[]
-- columns: name, project, verb, target, started_by, request, progress, counts, done, total, is_estimate, created_at,
--     updated_at, next_step_at
SELECT name, project, verb, target, started_by, request::text AS request, progress::text AS progress,
       counts::text AS counts, done, total, is_estimate, created_at, updated_at, next_step_at
FROM operations
WHERE ended_at IS NULL AND next_step_at <= %(now)s AND verb = ANY (%(verbs)s::text[])
ORDER BY (
    SELECT max(other.updated_at)
    FROM operations AS other
    WHERE other.project = operations.project AND other.ended_at IS NULL
), next_step_at
LIMIT 1
FOR UPDATE SKIP LOCKED
