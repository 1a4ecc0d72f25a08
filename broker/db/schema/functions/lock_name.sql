-- Locks a name until the transaction ends: another transaction that inserts the same name waits at the unique
-- index, and no row is left.
CREATE OR REPLACE FUNCTION lock_name(of_name text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO locked_names (name) VALUES (of_name);
    DELETE FROM locked_names WHERE name = of_name;
END $$;
