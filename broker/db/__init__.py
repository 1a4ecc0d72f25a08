"""The PostgreSQL layer: connections, the schema, Citus, the embedded server."""
