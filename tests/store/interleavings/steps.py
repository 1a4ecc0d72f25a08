"""Concurrent sessions in a chosen order: one is stopped before a statement, another is seen to wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from broker.store.database import Connection, Database
from tests.fixtures.broker import eventually


class Paused:
    """A connection that stops before the first statement that contains `before`, until `go` is set."""

    def __init__(self, connection: Connection, before: str) -> None:
        self._connection = connection
        self._before = before.encode()
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        if self._before in (query if isinstance(query, bytes) else str(query).encode()) and not self.go.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._connection.execute(query, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@asynccontextmanager
async def paused(database: Database, *, before: str) -> AsyncIterator[Any]:
    async with database.connection() as connection:
        yield Paused(connection, before)


@asynccontextmanager
async def open_transaction(database: Database) -> AsyncIterator[Connection]:
    """A session within a transaction that commits at the end of the block, and holds its locks till then."""
    async with database.connection() as connection:
        await connection.execute(b"BEGIN")
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        await connection.execute(b"COMMIT")


async def until_waiting(database: Database, count: int = 1) -> None:
    """Returns once `count` sessions of the database wait for a lock."""

    async def waiting() -> bool:
        async with database.connection() as connection:
            cursor = await connection.execute(
                b"SELECT count(*) FROM pg_stat_activity"
                b" WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0"
            )
            row = await cursor.fetchone()
            return row is not None and row[0] >= count

    await eventually(waiting)
