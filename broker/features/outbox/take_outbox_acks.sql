-- Takes acks and nacks out of the outbox, except those that another process is just taking out.
-- parameters: ns int8[]
-- columns: n
DELETE FROM outbox
WHERE n = ANY(ARRAY(SELECT n FROM outbox WHERE n = ANY(%(ns)s) FOR UPDATE SKIP LOCKED))
RETURNING n
