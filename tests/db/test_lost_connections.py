"""Connections to the database that are lost as soon as they are made, or whose task is cancelled."""

import asyncio
import gc
import warnings
from collections.abc import Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
import pytest
from psycopg import waiting
from sqlalchemy import text

from broker.db.driver.database import Database
from broker.db.driver.patient_connection import PatientConnection
from broker.model.errors import Unavailable

_END = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'broker'"


class _Fated(Database):
    """Once `fated`, its connections for resources are ended by PostgreSQL when they have been made."""

    fated = False

    async def _connect(self, **options: Any) -> PatientConnection:
        connection = await super()._connect(**options)
        if self.fated:
            await self.end_all()
        return connection

    async def end_all(self) -> None:
        async with await psycopg.AsyncConnection.connect(self.url, autocommit=True) as other:
            await other.execute(_END + " AND datname = current_database()")


async def test_whoever_needs_one_is_told_that_the_database_is_unavailable(database_url: str) -> None:
    database = _Fated(database_url)
    try:
        async with database.transaction() as connection:
            await connection.execute(text("SELECT 1"))
        await database.end_all()
        database.fated = True
        with pytest.raises(Unavailable):
            async with database.transaction():
                pass
        database.fated = False
        async with database.transaction() as connection:
            await connection.execute(text("SELECT 1"))
    finally:
        await database.close()


class _CancelledAt:
    """Awaits a coroutine, and cancels the current task when this waits for the `number`th time."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, None]) -> None:
        self._number, self._coroutine = number, coroutine

    def __await__(self) -> Generator[Any, None, bool]:
        """Returns whether the coroutine has ended before it waited so often."""
        task, steps, waits = asyncio.current_task(), self._coroutine.__await__(), 0
        assert task is not None
        go_on = partial(steps.send, None)
        while True:
            try:
                awaited = go_on()
            except StopIteration:
                return waits < self._number
            waits += 1
            if waits == self._number:
                task.cancel()
            try:
                yield awaited
            except BaseException as error:
                go_on = partial(steps.throw, error)
            else:
                go_on = partial(steps.send, None)


@pytest.mark.parametrize("how", ["connection", "transaction"])
async def test_a_connection_is_given_back_wherever_its_task_is_cancelled(
    database: Database, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(waiting, "MAX_BUSY_TIME", -1.0)  # psycopg yields to the event loop wherever it may

    async def use() -> None:
        async with getattr(database, how)() as connection:
            await connection.execute("SELECT 1" if how == "connection" else text("SELECT 1"))

    async def run(number: int) -> bool:
        return await _CancelledAt(number, use())

    number, has_ended = 0, False
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        while not has_ended:
            number += 1
            await use()
            with suppress(asyncio.CancelledError):
                has_ended = await asyncio.create_task(run(number))
            gc.collect()
            assert not caught, (number, [str(each.message) for each in caught])
    assert number > 3
