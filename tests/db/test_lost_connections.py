"""Connections to the database that are lost as soon as they are made."""

from typing import Any

import psycopg
import pytest
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
