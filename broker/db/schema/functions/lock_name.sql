-- Locks a name until the transaction ends. Another transaction that locks the same name waits at the unique index.
-- No row is left behind.
CREATE OR REPLACE FUNCTION lock_name(of_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO locked_names (name) VALUES (of_name);
    DELETE FROM locked_names WHERE name = of_name;
END $$;
