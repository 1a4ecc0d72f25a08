"""On which workers the shards of a topic lie: evenly on all of them, also those that it gets later (L1)."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from datetime import datetime

import pytest
from sqlalchemy import make_url

from broker.core.catalog import topic_rows as topics
from broker.core.catalog.topic_logs import add_levels, add_shards, replace_logs
from broker.db.driver.database import Database
from broker.model.priorities import Priorities
from broker.model.topic import Topic
from broker.model.topic_extensions import TopicExtensions
from tests.citus.conftest import distributed_database
from tests.fixtures.citus import NEEDS_CITUS, Node, Nodes
from tests.fixtures.database import begin, in_schema

pytestmark = NEEDS_CITUS

_THIRD = 5435
_WHERE = """
    SELECT nodeport FROM unnest(%s::int8[]) AS t (shard_id)
    JOIN pg_dist_shard AS s ON s.shardid = get_shard_id_for_distribution_column('broker.shards', t.shard_id)
    JOIN pg_dist_shard_placement USING (shardid)
"""


@pytest.fixture
def placed_url(citus_nodes: Nodes) -> Iterator[str]:
    with distributed_database(citus_nodes) as url:
        yield url


@pytest.fixture
async def placed(placed_url: str) -> AsyncIterator[tuple[Database, datetime]]:
    database = Database(in_schema(placed_url), pool_size=2)
    try:
        yield database, await begin(database)
    finally:
        await database.close()


async def _make(database: Database, now: datetime, name: str, count: int) -> Topic:
    async with database.transaction() as connection:
        topic = await topics.insert_topic(
            connection, topic=Topic(name=f"projects/p/topics/{name}"), shard_count=count, now=now
        )
        assert topic is not None
        return topic


async def _read(database: Database, name: str) -> Topic:
    async with database.transaction() as connection:
        topic = await topics.find_topic(connection, name=name)
        assert topic is not None
        return topic


def _on_workers(nodes: Nodes, url: str, shard_ids: tuple[int, ...]) -> list[int]:
    """How many of them lie on each worker that has any, the fewest first."""
    rows = nodes.coordinator.ask(_WHERE, list(shard_ids), database=str(make_url(url).database))
    return sorted(Counter(port for (port,) in rows).values())


async def test_a_topic_lies_evenly_on_the_workers(
    placed: tuple[Database, datetime], placed_url: str, citus_nodes: Nodes
) -> None:
    database, now = placed
    for count in (2, 4, 8):
        topic = await _make(database, now, f"of-{count}", count)
        assert _on_workers(citus_nodes, placed_url, topic.shard_ids) == [count // 2] * 2
        async with database.transaction() as connection:
            await replace_logs(connection, topic=topic, now=now)
        replaced = await _read(database, topic.name)
        assert not {*replaced.shard_ids} & {*topic.shard_ids}
        assert _on_workers(citus_nodes, placed_url, replaced.shard_ids) == [count // 2] * 2


async def test_shards_that_are_added_even_out_what_there_is(
    placed: tuple[Database, datetime], placed_url: str, citus_nodes: Nodes
) -> None:
    database, now = placed
    for number in range(4):
        topic = await _make(database, now, f"growing-{number}", 1)
        for count in (1, 1, 2, 3):
            async with database.transaction() as connection:
                await add_shards(connection, topic=topic, count=count, now=now)
            grown = await _read(database, topic.name)
            assert grown.shard_ids[: len(topic.shard_ids)] == topic.shard_ids  # those of keys stay the first
            topic = grown
            total = len(topic.shard_ids)
            assert _on_workers(citus_nodes, placed_url, topic.shard_ids) == [total // 2, total - total // 2]


async def test_levels_lie_evenly_and_so_do_the_others(
    placed: tuple[Database, datetime], placed_url: str, citus_nodes: Nodes
) -> None:
    database, now = placed
    wanted = Topic(name="projects/p/topics/urgent", extensions=TopicExtensions(priorities=Priorities(levels=5)))
    async with database.transaction() as connection:
        topic = await topics.insert_topic(connection, topic=wanted, shard_count=4, now=now)
        assert topic is not None
    assert _on_workers(citus_nodes, placed_url, topic.plain_shard_ids) == [2, 2]
    assert sorted(topic.levels.values()) == [0, 1, 2, 3]
    assert _on_workers(citus_nodes, placed_url, tuple(topic.levels)) == [2, 2]
    async with database.transaction() as connection:
        await add_levels(connection, topic=topic, levels=[4, 5], now=now)
    topic = await _read(database, topic.name)
    assert _on_workers(citus_nodes, placed_url, tuple(topic.levels)) == [3, 3]


@pytest.fixture
def third(citus_nodes: Nodes, placed_url: str) -> Iterator[Node]:
    """A worker that was added later, and has its part of the tables."""
    node, name = Node(citus_nodes.directory, _THIRD), str(make_url(placed_url).database)
    node.make()
    node.start()
    try:
        node.ask(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        node.ask("CREATE EXTENSION citus", database=name)
        citus_nodes.coordinator.ask("SELECT citus_add_node(%s, %s)", str(node.directory), node.port, database=name)
        yield node
    finally:
        node.stop()


async def test_a_worker_that_was_added_gets_its_share_once_it_has_parts(
    placed: tuple[Database, datetime], placed_url: str, citus_nodes: Nodes, third: Node
) -> None:
    database, now = placed
    before = await _make(database, now, "before", 4)
    assert _on_workers(citus_nodes, placed_url, before.shard_ids) == [2, 2]
    moving = "SELECT rebalance_table_shards(shard_transfer_mode => 'block_writes')"
    citus_nodes.coordinator.ask(moving, database=str(make_url(placed_url).database))
    for count, wanted in ((2, [1, 1]), (3, [1, 1, 1]), (4, [1, 1, 2]), (8, [2, 3, 3])):
        topic = await _make(database, now, f"of-{count}", count)
        assert _on_workers(citus_nodes, placed_url, topic.shard_ids) == wanted
