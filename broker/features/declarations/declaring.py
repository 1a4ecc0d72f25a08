"""Turns of processes that apply declarations to projects."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.db.driver.database import Database
from broker.db.driver.locks import DECLARING, held

_CHECK_SECONDS = 0.1


@asynccontextmanager
async def turn_to_declare(database: Database) -> AsyncIterator[None]:
    """Waits until no other process declares, and holds that turn, so that two processes do not do the same twice.

    The lock goes with the connection if the process dies.  Nothing else in the database waits for it.
    """
    while True:
        async with held(database, DECLARING, wait=False) as lock:
            if lock is not None:
                yield
                return
        await asyncio.sleep(_CHECK_SECONDS)  # a statement that waits is cancelled after a while
