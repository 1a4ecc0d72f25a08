"""All that knows PostgreSQL: connections, the schema, Citus, the embedded server."""
