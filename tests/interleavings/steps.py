"""Concurrent sessions in a chosen order: one is stopped before a statement, another is seen to wait for it."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from broker.core.backlog import lock_backlogs_citus, locked_backlog
from broker.db.driver.database import Database
from broker.db.driver.forms import run_in_forms
from broker.db.driver.hot_connection import Bound, HotConnection
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from tests.fixtures.broker import eventually
from tests.fixtures.waiting import waiting_sessions


def changed(statement: Statement, old: str, new: str) -> Statement:
    """A statement with a part of its text replaced, which has the second form that it had (db/driver/forms.py)."""
    assert old in statement.text.decode(), statement.text.decode()
    text = statement.text.decode().replace(old, new).encode()
    name = statement.name + b" changed"
    replaced = Statement(name, text, statement.parameters, statement.columns, file=statement.file)
    for form in ("citus_statement", "citus_function"):
        vars(replaced)[form] = getattr(statement, form)
    return replaced


def leave_piles_unlocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one server and on nodes."""
    for module, name in ((locked_backlog, "_LOCK_BACKLOGS"), (lock_backlogs_citus, "_LOCK_BACKLOGS_OF_SHARD")):
        monkeypatch.setattr(module, name, changed(getattr(module, name), "FOR UPDATE OF c", ""))


_numbers = itertools.count()


class Paused:
    """A connection that stops before the first batch with a statement that contains `before`, until `go` is set."""

    def __init__(self, connection: HotConnection, before: str) -> None:
        self._connection = connection
        self._before = before.encode()
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def run(self, *bound: Bound, as_written: bool = False) -> list[list[tuple[Any, ...]]]:
        if self.is_distributed and not as_written:
            return await run_in_forms(self, bound)
        if any(self._before in statement.text for statement, _ in bound):
            self.reached.set()
            await self.go.wait()
        return await self._connection.run(*bound, as_written=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@asynccontextmanager
async def paused(database: Database, *, before: str) -> AsyncIterator[Any]:
    async with database.hot() as connection:
        yield Paused(connection, before)


async def execute(connection: HotConnection, text: str) -> list[tuple[Any, ...]]:
    """Any statement, in the session of a hot connection."""
    [rows] = await connection.run((Statement(f"test {next(_numbers)}".encode(), text.encode()), {}))
    return rows


@asynccontextmanager
async def open_transaction(database: Database) -> AsyncIterator[HotConnection]:
    """A session within a transaction that commits at the end of the block, and holds its locks till then."""
    async with database.hot() as connection:
        await connection.run((BEGIN, {}))
        try:
            yield connection
        except BaseException:
            await connection.close()
            raise
        await connection.run((COMMIT, {}))


async def lock_rows(session: HotConnection, table: str, how: str = "FOR UPDATE") -> None:
    """All rows of a table of shards, one after the other: where these lie on nodes no statement locks several."""
    for (shard_id,) in await execute(session, f"SELECT DISTINCT shard_id FROM {table} ORDER BY 1"):
        await execute(session, f"SELECT FROM {table} WHERE shard_id = {shard_id} {how}")


async def until_waiting(database: Database, count: int = 1) -> None:
    """Returns once `count` sessions of the database wait for a lock."""

    async def waiting() -> bool:
        async with database.connection() as connection:
            return len(await waiting_sessions(connection)) >= count

    await eventually(waiting)
