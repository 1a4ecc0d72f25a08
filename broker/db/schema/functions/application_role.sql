-- Returns the calling role, if it may write to the outbox in the project; raises an error otherwise. The calling
-- role is that of SET ROLE, or else the one that logged in: both are visible in a SECURITY DEFINER function, which
-- itself runs with the rights of its owner. A role has the grants of all roles that it inherits from, as with
-- tables.
CREATE OR REPLACE FUNCTION application_role(of_project text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    caller text := CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role') END;
BEGIN
    IF EXISTS (SELECT FROM application_grants AS g WHERE g.role = caller AND g.project = of_project)
       OR EXISTS (
           SELECT
           FROM application_grants AS g
           JOIN pg_catalog.pg_roles AS r ON r.rolname = g.role
           WHERE g.project = of_project AND pg_has_role(caller, r.oid, 'USAGE')
       )
    THEN
        RETURN caller;
    END IF;
    RAISE EXCEPTION USING ERRCODE = 'insufficient_privilege',
        MESSAGE = format('The role %s may not publish or acknowledge in %s.', caller, left(of_project, 300)),
        HINT = format('`broker sql grant %s --project %s` lets it.', caller, left(substr(of_project, 10), 300));
END $$;

REVOKE EXECUTE ON FUNCTION application_role FROM PUBLIC;
