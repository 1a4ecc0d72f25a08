"""A pass of the janitor does what it can, whatever else it cannot do."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from broker.core.log.partitions import list_partitions
from broker.core.process.database_clock import DatabaseClock
from broker.core.retention.retention_janitor import RetentionJanitor
from broker.db.driver.database import Database
from broker.model.errors import Unavailable
from tests.fixtures.core import make_core


class LaterClock(DatabaseClock):
    """A few hours ahead, so that there are partitions to drop and to make."""

    def now(self) -> datetime:
        return super().now() + timedelta(hours=6)


@pytest.fixture
async def full_disk(database: Database, now: datetime) -> AsyncIterator[None]:
    """There are partitions, but no table can be made; the error is that of a file without room."""
    async with database.connection() as connection:
        await connection.execute(
            b"""
            CREATE FUNCTION no_room() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE 'No space left on device' USING ERRCODE = 'disk_full'; END $$
            """
        )
        await connection.execute(
            b"CREATE EVENT TRIGGER full_disk ON ddl_command_start WHEN TAG IN ('CREATE TABLE')"
            b" EXECUTE FUNCTION no_room()"
        )
        yield
        await connection.execute(b"DROP EVENT TRIGGER full_disk")


async def _starts(database: Database) -> list[datetime]:
    async with database.connection() as connection:
        return [partition.start for partition in await list_partitions(connection)]


@pytest.mark.usefixtures("full_disk")
async def test_space_is_given_back_although_no_partition_can_be_made(database: Database, now: datetime) -> None:
    clock = LaterClock(database)
    await clock.synchronise()
    assert await _starts(database)
    with pytest.raises(Unavailable):
        await RetentionJanitor(make_core(database, clock)).run_once()
    assert await _starts(database) == []


async def test_a_pass_makes_partitions_and_drops_others(database: Database, now: datetime) -> None:
    clock = LaterClock(database)
    await clock.synchronise()
    await RetentionJanitor(make_core(database, clock)).run_once()
    starts = await _starts(database)
    assert starts
    assert min(starts) > now + timedelta(hours=5)
