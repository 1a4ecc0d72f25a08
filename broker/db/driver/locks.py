"""Locks between brokers that concern more than a row: empty tables of the broker's schema, and names.

A role that may not write to a table cannot lock it, so no other role of the database can take these locks.
Advisory locks are available to every role, and pg_locks shows their keys to all (docs/decisions/0083).  A lock
belongs to a transaction.  For work that consists of several transactions another session holds the lock (`held`).
That session has neither a snapshot nor a transaction id meanwhile, so it delays no vacuum and no index build.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import sql
from sqlalchemy import text

from broker.db.driver.database import Connection, Database, ResourceConnection
from broker.db.driver.statements import Statement

MAKING_PARTITIONS = "lock_partitions"  # one process at a time creates them
CLEANING_UP = "lock_cleanup"  # one process at a time drops and deletes
DROPPING = "lock_dropping"  # exclusive for dropping the log, shared for references to its messages
DECLARING = "lock_declaring"  # one process at a time applies declarations
MEASURING = "lock_measuring"  # one process at a time measures the tables
REPORTING_EVENTS = "lock_events"  # one process at a time detects events
LOCKS = (MAKING_PARTITIONS, CLEANING_UP, DROPPING, DECLARING, MEASURING, REPORTING_EVENTS)

# Until the end of the transaction no partition is dropped and no straggler deleted.  It must be taken before the
# log is read (docs/decisions/0031-operations.md).
HOLD_RETENTION = Statement(b"hold_retention", f"LOCK TABLE {DROPPING} IN ROW SHARE MODE".encode())

_LOCK_NAME = text("SELECT lock_name(:name)")
_LOCK = sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE")
_TRY = "SELECT try_lock(%s)"
_MAX_NAME = 500  # characters; an index entry has room for 2,704 bytes.  Names that end alike share a lock
_UNLIMITED = b"SET LOCAL idle_in_transaction_session_timeout = 0"


async def lock(connection: Connection, name: str) -> None:
    """Takes a lock until the transaction ends; waits for its holder."""
    await connection.execute(_LOCK.format(sql.Identifier(name)))


async def try_lock(connection: Connection, name: str) -> bool:
    """Takes a lock until the transaction ends; False: another session has it."""
    row = await (await connection.execute(_TRY, [name])).fetchone()
    return row is not None and bool(row[0])


async def lock_name(connection: ResourceConnection, name: str) -> None:
    """Takes a lock that is made for the purpose until the transaction ends; waits for its holder."""
    await connection.execute(_LOCK_NAME, {"name": name[-_MAX_NAME:]})


class Held:
    """A lock that a session of its own holds."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def check(self) -> None:
        """Raises psycopg.Error if the session, and with it the lock, was lost."""
        await self._connection.execute(b"SHOW transaction_isolation")


@asynccontextmanager
async def held(database: Database, name: str, *, wait: bool) -> AsyncIterator[Held | None]:
    """Holds a lock for the block, whatever transactions that has; it goes with the session if the process dies.

    None: another session has it, which does not happen with `wait`.
    """
    async with database.connection() as connection, connection.transaction():
        if wait:
            await lock(connection, name)
        elif not await try_lock(connection, name):
            yield None
            return
        # Sent after the SELECT of try_lock, whose portal would keep its snapshot until another statement replaces
        # it.
        await connection.execute(_UNLIMITED)
        yield Held(connection)
