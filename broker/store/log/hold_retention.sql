-- Until the end of this transaction no partition is dropped, and no straggler deleted: what is found in the log stays
-- there until what refers to it is committed.  It is to be had before anything of the log is read
-- (docs/decisions/0031-operations.md); the key is DROPPING's of store/driver/advisory_locks.py.
SELECT 1 AS held
WHERE pg_advisory_xact_lock_shared(
    CASE current_schema() WHEN 'public' THEN 4711005 ELSE hashtextextended(current_schema(), 4711005) END
) IS NOT NULL
