"""Builds an index on a table in use, partitioned or not, without delaying publishes or claims.

For migrations.  A revision that builds an index does nothing else, because the build is not one transaction:

    def upgrade() -> None:
        build_index_online("message_batches_by_size", "message_batches", "(shard_id, size)")

When it is started again after an interruption, it continues: what an interrupted CREATE INDEX CONCURRENTLY left
behind is dropped.
"""

from typing import Any

import psycopg
from alembic import op
from psycopg import sql
from psycopg.errors import UndefinedTable

# Building waits for older transactions.  Meanwhile only vacuum and the janitor wait for it.
_BUILD_LOCK_SECONDS = 60
_MAX_NAME = 63

_Connection = psycopg.Connection[Any]

_IS_PARTITIONED = "SELECT relkind = 'p' FROM pg_class WHERE oid = %s::regclass"
_IS_VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)"
_PARTITIONS_WITHOUT = """
    SELECT c.relname
    FROM pg_inherits AS p
    JOIN pg_class AS c ON c.oid = p.inhrelid
    WHERE p.inhparent = %s::regclass AND NOT p.inhdetachpending AND NOT EXISTS (
        SELECT FROM pg_inherits AS of_index
        JOIN pg_index AS i ON i.indexrelid = of_index.inhrelid
        WHERE of_index.inhparent = %s::regclass AND i.indrelid = c.oid
    )
    ORDER BY c.relname
"""


def build_index_online(name: str, table: str, definition: str) -> None:
    """Builds an index of `table` within a revision.

    `definition` is what follows the table's name in CREATE INDEX.
    """
    with op.get_context().autocommit_block():
        connection = op.get_bind().connection.driver_connection
        assert isinstance(connection, psycopg.Connection)
        build(connection, name, table, definition)


def build(connection: _Connection, name: str, table: str, definition: str) -> None:
    """Builds the index on a connection in autocommit mode."""
    if not _ask(connection, _IS_PARTITIONED, table):
        _build_one(connection, name, table, definition)
        return
    if _ask(connection, _IS_VALID, name) is None:
        # On the parent only, which takes no time; from now on each new partition gets its index when it is
        # attached.
        _do(connection, "CREATE INDEX {} ON ONLY {} " + definition, name, table)
    for (partition,) in connection.execute(_PARTITIONS_WITHOUT, [table, name]).fetchall():
        part = f"{partition}_{name}"
        assert len(part) <= _MAX_NAME, f"{name} is too long a name"
        try:
            _build_one(connection, part, partition, definition)
            _do(connection, "ALTER INDEX {} ATTACH PARTITION {}", name, part)
        except UndefinedTable:  # the janitor has dropped the partition
            continue
    assert _ask(connection, _IS_VALID, name), f"{name} is not there for every partition"


def _build_one(connection: _Connection, name: str, table: str, definition: str) -> None:
    before = _ask(connection, "SHOW lock_timeout")
    connection.execute(f"SET lock_timeout = '{_BUILD_LOCK_SECONDS}s'".encode())
    try:
        if _ask(connection, _IS_VALID, name) is False:
            _do(connection, "DROP INDEX CONCURRENTLY {}", name)
        if _ask(connection, _IS_VALID, name) is None:
            _do(connection, "CREATE INDEX CONCURRENTLY {} ON {} " + definition, name, table)
    finally:
        connection.execute(f"SET lock_timeout = '{before}'".encode())


def _ask(connection: _Connection, question: str, *parameters: str) -> Any:
    """The one value that a query gives; None if it gives no row."""
    row = connection.execute(question.encode(), parameters).fetchone()
    return row and row[0]


def _do(connection: _Connection, statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))
