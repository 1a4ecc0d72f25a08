"""A broker on a schema whose shards lie on two workers; a database and a process for each module that asks."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime

import httpx
import pytest

from broker.db.driver.database import Database
from broker.db.schema import migrations
from tests.cli.processes import run_broker
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest
from tests.fixtures.citus import Nodes
from tests.fixtures.database import begin, in_schema


@contextmanager
def distributed_database(nodes: Nodes) -> Iterator[str]:
    """The URL of a database whose tables of messages lie on the workers, within the block."""
    with nodes.database() as url:
        migrations.upgrade(url)
        migrations.distribute_tables(url)
        yield url


@pytest.fixture(scope="module")
def distributed_url(citus_nodes: Nodes) -> Iterator[str]:
    with distributed_database(citus_nodes) as url:
        yield url


@pytest.fixture
async def through(distributed_url: str) -> AsyncIterator[tuple[Database, datetime]]:
    """A database whose hot statements go to workers, and its time."""
    database = Database(in_schema(distributed_url), hot_url=Nodes.hot_url(distributed_url), pool_size=2)
    try:
        yield database, await begin(database)
    finally:
        await database.close()


@pytest.fixture(scope="module")
def served_url(citus_nodes: Nodes) -> Iterator[str]:
    """Of a database whose tables of messages are distributed."""
    with citus_nodes.database() as url:
        done = run_broker("migrate", "--distribute", "--database-url", url)
        assert done.returncode == 0, done.stderr
        assert "15 tables were distributed or made known to Citus.\n" in done.stdout
        yield url


def broker_options(url: str, hot: str) -> list[str]:
    """Of a broker whose hot statements go to the coordinator, or to any of the workers."""
    nodes = ["--hot-database-url", Nodes.hot_url(url)] if hot == "workers" else []
    return ["--database-url", url, *nodes, "--port", "0"]


@pytest.fixture(scope="module", params=["coordinator", "workers"])
def served(request: pytest.FixtureRequest, served_url: str) -> Iterator[str]:
    """The URL of a broker on it."""
    broker = BrokerProcess(*broker_options(served_url, request.param)).wait_until_ready()
    yield broker.url
    assert broker.stop() == 0
    assert not [line for line in broker.log if "Traceback" in line or " ERROR " in line], "\n".join(broker.log)


@pytest.fixture
async def rest(served: str, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=served, timeout=60, verify=NO_TLS) as client:
        yield Rest(client, project)
