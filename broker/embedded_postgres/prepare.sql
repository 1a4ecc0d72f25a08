-- What a start of the embedded PostgreSQL sees to, as the superuser (by psql: \gexec runs each row of an answer).
-- What is already so it leaves.  Release 0.1.0 made everything as the superuser.

SELECT 'CREATE ROLE broker LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'broker') \gexec

SELECT 'CREATE DATABASE broker OWNER broker'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = 'broker') \gexec

SELECT 'ALTER DATABASE broker OWNER TO broker'
FROM pg_catalog.pg_database WHERE datname = 'broker' AND datdba = 'postgres'::regrole \gexec

\connect broker

WITH object (kind, name, schema, class, id, owner) AS (
    SELECT 'SCHEMA', quote_ident(nspname), oid, tableoid, oid, nspowner
    FROM pg_catalog.pg_namespace
    UNION ALL
    SELECT CASE relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END,
           oid::regclass::text, relnamespace, tableoid, oid, relowner
    FROM pg_catalog.pg_class
    WHERE relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'ROUTINE', oid::regprocedure::text, pronamespace, tableoid, oid, proowner
    FROM pg_catalog.pg_proc
)
SELECT format('ALTER %s %s OWNER TO broker', kind, name)
FROM object
WHERE owner = 'postgres'::regrole
  AND schema NOT IN (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname ~ '^(pg_|information_schema$)')
  AND NOT EXISTS (  -- members of extensions; and sequences of columns, which go with their tables
      SELECT FROM pg_catalog.pg_depend
      WHERE classid = class AND objid = id AND (deptype = 'e' OR (kind = 'SEQUENCE' AND deptype IN ('a', 'i')))
  ) \gexec
