-- Returns whether a row is the first that its transaction writes to the outbox of this installation. On commit the
-- first row wakes the brokers.
--
-- The first row fires a deferred trigger, which PostgreSQL refuses within maintenance commands (ANALYZE, CREATE
-- INDEX, REFRESH MATERIALIZED VIEW, autovacuum). These commands run functions of a table's owner in the session of
-- another role, whose grants would apply. Whether a row is the first is read from the table, because any role could
-- change a setting. The ordered range makes PostgreSQL use the index; for an equality the planner may read the
-- whole table.
CREATE OR REPLACE FUNCTION is_first_in_outbox(of_xid bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT true FROM outbox WHERE xid >= of_xid AND xid <= of_xid ORDER BY xid LIMIT 1) IS NULL;
END $$;

REVOKE EXECUTE ON FUNCTION is_first_in_outbox FROM PUBLIC;
