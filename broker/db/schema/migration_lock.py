"""The lock on a schema's version table, which lets only one process migrate at a time."""

from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from broker.db.schema.installations import VERSION_TABLE
from broker.db.schema.migration_waits import MigrationUnderWay

# It conflicts with itself and with vacuum, but not with the statement that writes the revision.
_LOCK = sql.SQL("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE NOWAIT")


def lock_migrations(connection: psycopg.Connection[Any], *schemas: str) -> None:
    """Locks migrations of these schemas until the transaction ends.  Raises MigrationUnderWay.

    A schema without a version table has nothing to migrate.  No session waits for this lock: one that waits has a
    snapshot, and an index that is being built concurrently would wait for it.
    """
    for schema in schemas:
        table = sql.Identifier(schema, VERSION_TABLE)
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table.as_string(connection)]).fetchone()
        if row != (True,):
            continue
        try:
            connection.execute(_LOCK.format(table))
        except LockNotAvailable as error:
            raise MigrationUnderWay from error
