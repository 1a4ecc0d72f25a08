"""A broker is ready when a publish, a pull and an ack would find a database that they can use."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import make_url

from broker.core.context.readiness import check_ready
from broker.db.driver.database import Database
from broker.db.driver.statements import Statement
from broker.model.errors import Unavailable

pytestmark = pytest.mark.one_server("the limit of a role holds on the coordinator alone")


@pytest.fixture
def limited(database_url: str) -> Iterator[tuple[psycopg.Connection, str]]:
    """A session of the superuser, and the URL of a role that may have one connection."""
    role = f"limited_{make_url(database_url).database}"
    with psycopg.connect(database_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN IN ROLE postgres CONNECTION LIMIT 1".encode())
        yield admin, database_url.replace("postgres@", f"{role}@", 1)
        admin.execute(f"DROP ROLE {role}".encode())


async def test_a_pool_without_a_connection_is_not_ready_and_says_which_limit_it_meets(
    limited: tuple[psycopg.Connection, str],
) -> None:
    admin, url = limited
    database = Database(url)
    try:
        async with database.connection():  # the only one that there may be
            with pytest.raises(Unavailable, match=r"no connection left .*too many connections for role"):
                await check_ready(database)
        admin.execute(f"ALTER ROLE {make_url(url).username} CONNECTION LIMIT 2".encode())
        while True:  # until the pool, which tries again, has found that there is room now
            try:
                await check_ready(database)
            except Unavailable:
                continue
            break
    finally:
        await database.close()


async def test_a_pool_whose_connections_are_all_in_use_is_ready(database: Database) -> None:
    database = Database(database.url, pool_size=1)
    try:
        async with database.hot():
            await check_ready(database)
    finally:
        await database.close()


async def test_a_pool_makes_do_with_the_connections_that_the_server_allows(
    limited: tuple[psycopg.Connection, str],
) -> None:
    """A connection too many does not make the server away: callers wait for one that is in use."""
    _, url = limited
    database = Database(url, pool_size=3)
    try:
        async with database.hot() as first:
            waiting = [asyncio.create_task(database.now()) for _ in range(3)]
            done, _ = await asyncio.wait(waiting, timeout=0)
            assert not done
            await first.run((Statement(b"one", b"SELECT 1"), {}))
        assert len(await asyncio.gather(*waiting)) == 3
    finally:
        await database.close()
