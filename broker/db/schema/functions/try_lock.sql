-- Tries to lock a table, and returns whether it is locked (db/driver/locks.py). It is written in PL/pgSQL because
-- PostgreSQL reports an error that is handled there neither to the client nor in its log.
CREATE OR REPLACE FUNCTION try_lock(lock_table text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('LOCK TABLE %I IN EXCLUSIVE MODE NOWAIT', lock_table);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END $$;
