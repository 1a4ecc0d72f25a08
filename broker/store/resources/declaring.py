"""Turns of processes that make projects as files declare them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import sql

from broker.store.driver.advisory_locks import DECLARING, lock_key
from broker.store.driver.database import Database

_LOOK_SECONDS = 0.1


@asynccontextmanager
async def turn_to_declare(database: Database) -> AsyncIterator[None]:
    """One process at a time, so that two that start at once do not do the same twice; the lock goes with the
    connection if the process dies.  Nothing else in the database waits for it.
    """
    async with database.connection() as connection:
        take = sql.SQL("SELECT pg_try_advisory_lock({})").format(lock_key(DECLARING))
        while True:
            row = await (await connection.execute(take)).fetchone()
            if row is not None and row[0]:
                break
            await asyncio.sleep(_LOOK_SECONDS)  # a statement that waits is cancelled after a while
        try:
            yield
        finally:
            await connection.execute(sql.SQL("SELECT pg_advisory_unlock({})").format(lock_key(DECLARING)))
