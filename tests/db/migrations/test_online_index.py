"""Indexes that are built beside the load, whole after however many tries."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from broker.core.log.partitions import list_partitions, make_partitions_ahead
from broker.db.driver.database import Database
from broker.db.schema.online_index import build

NAME, TABLE, DEFINITION = "batches_by_size", "message_batches", "(shard_id, size)"


@pytest.fixture
def session(database_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(database_url, autocommit=True) as session:
        yield session


@pytest.fixture
async def partitions(database: Database, now: datetime) -> list[str]:
    """The names of several."""
    async with database.connection() as connection:
        await make_partitions_ahead(connection, now=now + timedelta(hours=1))
        names = [partition.name for partition in await list_partitions(connection)]
    assert len(names) > 1
    return names


def _validity(session: psycopg.Connection, name: str = NAME) -> list[bool]:
    rows = session.execute("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s)", [name]).fetchall()
    return [valid for (valid,) in rows]


def _indexed(session: psycopg.Connection) -> list[str]:
    """Partitions with an index of these columns that is fit for use."""
    rows = session.execute(
        "SELECT c.relname FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indrelid"
        " WHERE indisvalid AND relkind = 'r' AND pg_get_indexdef(i.indexrelid) LIKE '%%(shard_id, size)'"
    )
    return sorted(name for (name,) in rows)


def test_every_partition_gets_its_part(session: psycopg.Connection, partitions: list[str]) -> None:
    build(session, NAME, TABLE, DEFINITION)
    assert _validity(session) == [True]
    assert _indexed(session) == sorted(partitions)
    build(session, NAME, TABLE, DEFINITION)
    assert _indexed(session) == sorted(partitions)


async def test_a_partition_that_comes_later_has_it(
    session: psycopg.Connection, database: Database, partitions: list[str], now: datetime
) -> None:
    build(session, NAME, TABLE, DEFINITION)
    async with database.connection() as connection:
        await make_partitions_ahead(connection, now=now + timedelta(hours=9))
        later = [partition.name for partition in await list_partitions(connection)]
    assert len(later) > len(partitions)
    assert _indexed(session) == sorted(later)


def test_what_was_cut_short_is_built_anew(session: psycopg.Connection, partitions: list[str]) -> None:
    part = f"{partitions[0]}_{NAME}"
    with psycopg.connect(session.info.dsn) as writer:
        writer.execute(f"LOCK TABLE {partitions[0]} IN ROW EXCLUSIVE MODE")
        session.execute("SET lock_timeout = '50ms'")
        with pytest.raises(LockNotAvailable):
            session.execute(f"CREATE INDEX CONCURRENTLY {part} ON {partitions[0]} {DEFINITION}")
    assert _validity(session, part) == [False]
    build(session, NAME, TABLE, DEFINITION)
    assert (_validity(session), _validity(session, part)) == ([True], [True])
    assert session.execute("SHOW lock_timeout").fetchone() == ("50ms",)


def test_a_table_without_partitions_has_one_index(session: psycopg.Connection) -> None:
    for _ in range(2):
        build(session, "topics_by_time", "topics", "(created_at)")
    assert _validity(session, "topics_by_time") == [True]
