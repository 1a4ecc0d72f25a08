"""Shards that move to another node while messages are published and delivered."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from broker.db.driver import hot_connection
from broker.db.driver.database import Database
from tests.citus.test_serving import Traffic, make_database
from tests.cli.processes import run_broker
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually
from tests.fixtures.citus import MOVE_SHARD, NEEDS_CITUS, Node, Nodes
from tests.fixtures.log import SECOND, Log, make_log
from tests.fixtures.waiting import waiting_sessions
from tests.interleavings.steps import paused

pytestmark = NEEDS_CITUS


@pytest.fixture(scope="module")
def moving_url(citus_nodes: Nodes) -> Iterator[str]:
    with citus_nodes.database() as url:
        done = run_broker("migrate", "--distribute", "--database-url", url)
        assert done.returncode == 0, done.stderr
        yield url


def move_shard(nodes: Nodes, url: str, shard_id: int, how: str = "force_logical") -> None:
    nodes.coordinator.ask(MOVE_SHARD, how, shard_id, database=str(make_url(url).database))


async def _until_held_up(database: Database, move: "asyncio.Task[Any]") -> None:
    async def waits() -> bool:
        async with database.connection() as connection:
            return move.done() or bool(await waiting_sessions(connection))

    await eventually(waits)


async def _claimed_while_it_moves(nodes: Nodes, url: str, log: Log) -> tuple[list[str], list[str]]:
    """What a claim gets whose shard begins to move after its look, and what one gets behind the move."""
    database = log.database
    async with paused(database, before="INSERT INTO delivery_attempts") as session:
        claim = asyncio.create_task(log.pull_texts(now=log.start + SECOND, connection=session))
        await session.reached.wait()
        move = asyncio.create_task(asyncio.to_thread(move_shard, nodes, url, log.shard_id, "block_writes"))
        await _until_held_up(database, move)
        later = await log.pull_texts(now=log.start + SECOND) if move.done() else None
        session.go.set()
        first = await claim
        await move
    return first, await log.pull_texts(now=log.start + SECOND) if later is None else later


async def test_a_shard_does_not_move_under_a_claim(moving_url: str, citus_nodes: Nodes) -> None:
    async with make_database(moving_url) as (database, now):
        log = await make_log(database, now, "held")
        await log.publish("a", "b")
        assert await _claimed_while_it_moves(citus_nodes, moving_url, log) == (["a", "b"], [])


async def test_it_would_if_locks_alone_held_it(
    moving_url: str, citus_nodes: Nodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot_connection, "shards_locked_by", lambda *_: ())
    async with make_database(moving_url) as (database, now):
        log = await make_log(database, now, "lost")
        await log.publish("a", "b")
        assert await _claimed_while_it_moves(citus_nodes, moving_url, log) == (["a", "b"], ["a", "b"])


_SECONDS = 60.0
_MOVES = 3  # at least
_KILLS = 6  # of the coordinator


class Operator:
    """Adds a node, moves shards, and kills a worker, also in the midst of a move."""

    def __init__(self, nodes: Nodes, url: str) -> None:
        self.nodes, self.url = nodes, url
        self.until = time.monotonic() + _SECONDS
        self.moves = self.failed = self.kills = 0

    def ask(self, query: str, *parameters: Any) -> list[Any]:
        return self.nodes.coordinator.ask(query, *parameters, database=str(make_url(self.url).database))

    def work(self) -> None:
        """For a minute, and until all has happened."""
        self.ask("SELECT citus_add_node(%s, %s)", str(self.nodes.directory), self.nodes.workers[1].port)
        self.ask("SELECT citus_rebalance_start(shard_transfer_mode => 'force_logical')")
        self.ask("SELECT citus_rebalance_wait()")
        shard_ids = [shard_id for (shard_id,) in self.ask("SELECT shard_id FROM broker.shards ORDER BY 1")]
        for turn, shard_id in enumerate(cycle(shard_ids)):
            if turn % 3 == 0:
                self.kill_in_a_move(self.nodes.workers[turn // 3 % 2], shard_id)
            self.move(shard_id, "force_logical" if turn % 3 == 2 else "block_writes")
            if time.monotonic() > self.until and self.moves >= _MOVES:
                return

    def move(self, shard_id: int, how: str) -> None:
        """What another move has left is cleared away first, as Citus does by itself after a while."""
        self.ask("CALL citus_cleanup_orphaned_resources()")
        try:
            move_shard(self.nodes, self.url, shard_id, how)
            self.moves += 1
        except psycopg.Error:  # a node was away, or just started
            self.failed += 1

    def kill_in_a_move(self, worker: Node, shard_id: int) -> None:
        with ThreadPoolExecutor() as threads:
            moving = threads.submit(self.move, shard_id, "force_logical")
            time.sleep(0.5)  # into it: where, is not told
            worker.stop("immediate")
            self.kills += 1
            time.sleep(2)
            worker.start()
            moving.result()


@asynccontextmanager
async def two_brokers(
    url: str, start: Callable[..., BrokerProcess], project: str
) -> AsyncIterator[tuple[list[BrokerProcess], list[Rest]]]:
    """With a topic of eight shards, and its subscription."""
    brokers = [start("--database-url", url, "--port", "0") for _ in range(2)]
    async with AsyncExitStack() as stack:
        clients = [httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) for broker in brokers]
        rests = [Rest(await stack.enter_async_context(client), project) for client in clients]
        await rests[0].create_topic("topic-0", extensions={"shards": 8})
        await rests[0].create_subscription("sub-0", "topic-0", ackDeadlineSeconds=10)
        yield brokers, rests


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_shards_that_move_and_workers_that_are_killed_lose_nothing(
    citus_nodes: Nodes, start_broker: Callable[..., BrokerProcess], project: str
) -> None:
    with citus_nodes.database(workers=1) as url:
        done = run_broker("migrate", "--distribute", "--database-url", url)
        assert done.returncode == 0, done.stderr
        async with two_brokers(url, start_broker, project) as (brokers, rests):
            traffic, operator = Traffic(rests, publishers=2), Operator(citus_nodes, url)
            await traffic.run(range(1), operator.work, seconds=300)
        for broker in brokers:
            broker.stop()
    figures = (
        f"{len(traffic.answered)} answered, {operator.moves} moves, {operator.failed} failed, {operator.kills}"
    )
    print(figures, "kills")
    assert not traffic.answered - traffic.came
    assert traffic.refused <= {200, 429, 503}  # 429: more waits for a shard's lock than a broker takes in
    assert 503 in traffic.refused
    assert operator.kills > 0
    assert not [line for broker in brokers for line in broker.log if "Traceback" in line or " ERROR " in line]


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_a_coordinator_that_is_killed_loses_and_doubles_nothing(
    moving_url: str, citus_nodes: Nodes, start_broker: Callable[..., BrokerProcess], project: str
) -> None:
    coordinator = citus_nodes.coordinator
    traffic = Traffic([])

    def kill() -> None:
        for number in range(_KILLS):
            seen = len(traffic.answered)
            while len(traffic.answered) == seen:  # whoever publishes is in the midst of it
                time.sleep(0.05)
            time.sleep(1 + number / _KILLS)
            coordinator.stop("immediate")
            coordinator.start()

    async with two_brokers(moving_url, start_broker, project) as (_, rests):
        traffic.rests = rests
        await traffic.run(range(1), kill, seconds=300)
    print(f"{len(traffic.answered)} answered, {len(traffic.came)} came, {_KILLS} kills")
    assert not traffic.answered - traffic.came
    assert not {words: ids for words, ids in traffic.ids.items() if len(ids) > 1}
    assert traffic.refused <= {200, 429, 503}
