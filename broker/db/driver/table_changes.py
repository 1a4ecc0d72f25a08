"""Changes and sizes of tables, which need other commands for tables that Citus distributes (db/citus/engine.py)."""

from typing import Any

import psycopg
from psycopg import errors, sql

from broker.db.citus.engine import find_engine

_Connection = psycopg.AsyncConnection[Any]

_LOCK_TIMEOUT = "500ms"


async def measure_table(connection: _Connection, name: str) -> int:
    """Returns the bytes of a table, its indexes and its large values."""
    size_of = sql.Identifier((await find_engine(connection)).size_of)
    cursor = await connection.execute(sql.SQL("SELECT {}(%s::regclass)").format(size_of), [name])
    return await _read_number(cursor)


async def measure_tables(connection: _Connection) -> int:
    """Returns the bytes of all tables of the connection's schema, with indexes and large values."""
    return await _read_number(await connection.execute((await find_engine(connection)).measure_schema))


async def _read_number(cursor: psycopg.AsyncCursor[Any]) -> int:
    row = await cursor.fetchone()
    assert row is not None
    return int(row[0])


async def prepare_to_change_tables(connection: _Connection) -> None:
    """Begins a transaction that changes tables with the settings that it needs."""
    for setting, value in (await find_engine(connection)).changing_tables.items():
        await connection.execute(b"SELECT set_config(%s, %s, true)", [setting, value])


async def detach_and_drop(connection: _Connection, table: str, partition: str, *, detaching: bool) -> bool:
    """Detaches a partition and drops it; where the server can, without a lock on its table that others wait for.

    `detaching`: it was begun before.  Returns False if another session holds the partition just now.
    """
    name, of = sql.Identifier(partition), sql.Identifier(table)
    if not (await find_engine(connection)).detaches_online:
        return await _drop_at_once(connection, name, of)
    await connection.execute(sql.SQL("SET lock_timeout = {}").format(_LOCK_TIMEOUT))
    try:
        mode = sql.SQL("FINALIZE" if detaching else "CONCURRENTLY")
        await connection.execute(
            sql.SQL("ALTER TABLE {} DETACH PARTITION {} {}").format(of, name, mode), prepare=False
        )
        await connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name), prepare=False)
    except (errors.LockNotAvailable, errors.QueryCanceled, errors.ObjectNotInPrerequisiteState):
        return False
    finally:
        await connection.execute(b"RESET lock_timeout")
    return True


async def _drop_at_once(connection: _Connection, name: sql.Identifier, of: sql.Identifier) -> bool:
    """Publishes wait for the lock, and it waits for them, but not for long."""
    try:
        async with connection.transaction():
            await prepare_to_change_tables(connection)
            await connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(_LOCK_TIMEOUT))
            await connection.execute(sql.SQL("ALTER TABLE {} DETACH PARTITION {}").format(of, name), prepare=False)
            await connection.execute(sql.SQL("DROP TABLE {}").format(name), prepare=False)
    except (errors.LockNotAvailable, errors.QueryCanceled, errors.DeadlockDetected):
        return False
    return True
