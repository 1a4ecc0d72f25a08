-- What a start of the embedded PostgreSQL makes as the superuser, by psql, if it is not there (\gexec runs each row of
-- the answer).

SELECT 'CREATE ROLE broker LOGIN'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'broker') \gexec

SELECT 'CREATE DATABASE broker OWNER broker'
WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = 'broker') \gexec
