-- Deletes acks and nacks from the outbox, except those that another process is deleting.
-- parameters: ns int8[]
-- columns: n
DELETE FROM outbox
WHERE n = ANY(ARRAY(SELECT n FROM outbox WHERE n = ANY(%(ns)s) FOR UPDATE SKIP LOCKED))
RETURNING n
