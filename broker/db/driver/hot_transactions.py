"""Transactions of several hot statements, which a service begins and ends."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from broker.db.driver.database import Database
from broker.db.driver.hot_connection import HotConnection
from broker.db.driver.statements import BEGIN, COMMIT
from broker.model.errors import Aborted, NotAsExpected
from broker.model.preview import Undone

_TRIES = 5  # of a call that conflicts with another one

T = TypeVar("T")


@asynccontextmanager
async def hot_transaction(database: Database) -> AsyncIterator[HotConnection]:
    """Opens a transaction that is committed at the end of the block, and rolled back if the block raises.

    Raises a BrokerError for whatever goes wrong on PostgreSQL's side; the outcome of a commit that is not answered
    is unknown.
    """
    async with database.hot() as connection:
        try:
            await connection.run((BEGIN, {}))
            yield connection
            await connection.run((COMMIT, {}))
        except (Undone, NotAsExpected):
            await connection.undo()
            raise
        except BaseException:
            await connection.close()  # its transaction is open
            raise


async def in_hot_transaction(database: Database, act: Callable[[HotConnection], Awaitable[T]]) -> T:
    """Runs `act` in a transaction of its own and returns its result.

    It is tried up to five times while other transactions use the same rows (Aborted).
    """

    async def once() -> T:
        async with hot_transaction(database) as connection:
            return await act(connection)

    for _ in range(_TRIES - 1):
        try:
            return await once()
        except NotAsExpected:
            raise
        except Aborted:
            continue
    return await once()
