-- Creates the role and the database of the embedded PostgreSQL, if they do not exist. It is run by psql, as the
-- superuser, at each start (\gexec runs each row of the result as a statement).

SELECT 'CREATE ROLE broker LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'broker') \gexec

SELECT 'CREATE DATABASE broker OWNER broker'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = 'broker') \gexec
