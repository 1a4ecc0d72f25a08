"""Advisory locks belong to a database; the broker's, to the schema that its session works in.

In `public` they are as release 0.1.0 takes them, which works there beside this one during an upgrade.
"""

from psycopg import sql

MIGRATING = 4_711_000  # who migrates; two that start at once take turns
MAKING_PARTITIONS = 4_711_001  # one process at a time makes them
TIDYING = 4_711_002  # one process at a time drops and deletes
DROPPING = 4_711_005  # who drops what the log has; shared: who must find there what he refers to
DECLARING = 4_711_006  # one process at a time makes a project as files declare it
MEASURING = 4_711_007  # one process at a time measures the tables

_KEY = "CASE {schema} WHEN 'public' THEN {lock} ELSE hashtextextended({schema}, {lock}) END"


def lock_key(lock: int, schema: str = "") -> sql.Composed:
    """What pg_advisory_lock and the others take; `schema`: not the session's, which may not be there yet."""
    where = sql.Literal(schema) if schema else sql.SQL("current_schema()")
    return sql.SQL(_KEY).format(schema=where, lock=sql.Literal(lock))
