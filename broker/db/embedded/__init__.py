"""The embedded PostgreSQL: a cluster in a data directory, run as a child of the broker."""
