-- Whether this row is the first that its transaction stages in this installation: on commit that row wakes brokers.
--
-- The first row fires a deferred trigger, which PostgreSQL refuses within maintenance commands (ANALYZE, CREATE INDEX,
-- REFRESH MATERIALIZED VIEW, autovacuum). These run functions of a table's owner in somebody else's session, whose
-- grants would count. So whether a row is the first is read from the table: anybody could set a setting. An ordered
-- range is always looked up in the index; for an equality the planner may read the whole table.
CREATE OR REPLACE FUNCTION is_first_in_outbox(of_xid bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT true FROM outbox WHERE xid >= of_xid AND xid <= of_xid ORDER BY xid LIMIT 1) IS NULL;
END $$;

REVOKE EXECUTE ON FUNCTION is_first_in_outbox FROM PUBLIC;
