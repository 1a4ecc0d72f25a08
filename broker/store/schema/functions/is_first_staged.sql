-- Whether this row is the first that its transaction stages in this installation: on commit that row wakes
-- brokers.
CREATE OR REPLACE FUNCTION is_first_staged(of_xid bigint) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    variable text := 'broker.staged_' || 'staged'::regclass::oid;
BEGIN
    IF current_setting(variable, true) = of_xid::text THEN
        RETURN false;
    END IF;
    PERFORM set_config(variable, of_xid::text, true);
    RETURN true;
END $$;

REVOKE EXECUTE ON FUNCTION is_first_staged FROM PUBLIC;
