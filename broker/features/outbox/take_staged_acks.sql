-- Takes acks and nacks out of what is staged, except those that another process is just taking out.
-- parameters: ns int8[]
-- columns: n
DELETE FROM staged
WHERE n = ANY(ARRAY(SELECT n FROM staged WHERE n = ANY(%(ns)s) FOR UPDATE SKIP LOCKED))
RETURNING n
