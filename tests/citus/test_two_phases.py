"""A coordinator or a node that is killed between the two parts of a transaction: all of it is kept, or nothing.

Nodes are held where a commit is on their disk and not answered yet, so that the moment is no matter of luck.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from itertools import count

import psycopg
import pytest
from sqlalchemy import make_url, text

from broker.core.catalog import topic_rows as topics
from broker.core.log.messages import append_messages, encode_messages
from broker.core.process.database_clock import DatabaseClock
from broker.core.process.tasks import Tasks
from broker.db.citus import engine
from broker.db.driver import in_doubt
from broker.db.driver.database import Database
from broker.db.driver.in_doubt import report_in_doubt
from broker.db.driver.postgres_errors import translate_errors
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from broker.db.schema import prepared_transactions
from broker.features.inspect.fleet.database_checks import inspect_database
from broker.features.schedules import rows as store
from broker.model.errors import BrokerError, Unavailable
from broker.model.message import NewMessage
from broker.model.topic import Topic
from broker.observability.state_changes import StateChanges
from tests.features.import_export import test_copying as copying
from tests.features.schedules import test_ticker as schedules
from tests.fixtures.application import Application, publish
from tests.fixtures.broker import eventually
from tests.fixtures.citus import NEEDS_CITUS, Node, Nodes
from tests.fixtures.database import in_schema
from tests.fixtures.log import SECOND, Log, add_subscription, make_log
from tests.fixtures.outbox import OutboxLog

pytestmark = NEEDS_CITUS

_NAMES = map("t{}".format, count())  # of topics
_LABEL = b"""UPDATE topics SET settings = '{"labels": {"a": "b"}}' WHERE topic_id = %s"""
_CLOSE = b"UPDATE shards SET open = false WHERE shard_id = %s"


class Way(Enum):
    """What is killed, and when; without the mend, as Citus does it by itself."""

    NODE_IS_DONE = "the coordinator, when a node has done its part"
    COMMITTED = "the coordinator, when it has committed, and no node has heard of it"
    NODE_GOES = "a node that has done its part and not said so"
    BY_ITSELF = "the coordinator, when a node has done its part and nobody said that it is one with the other"
    NODE_GOES_BY_ITSELF = "such a node"

    @property
    def is_mended(self) -> bool:
        return self not in (Way.BY_ITSELF, Way.NODE_GOES_BY_ITSELF)

    @property
    def times(self) -> int:
        """How often something is done, then."""
        return 1 if self.is_mended else 2


EACH_WAY = pytest.mark.parametrize("way", Way, indirect=True)
OF_THE_COORDINATOR = [Way.NODE_IS_DONE, Way.COMMITTED, Way.BY_ITSELF]
AT_A_NODE = pytest.mark.parametrize("way", [Way.NODE_IS_DONE, Way.BY_ITSELF], indirect=True)


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Way:
    if not request.param.is_mended:
        monkeypatch.setattr(engine, "CITUS", replace(engine.CITUS, say_two_phases=""))
    assert isinstance(request.param, Way)
    return request.param


@pytest.fixture
def database_url(request: pytest.FixtureRequest, distributed_url: str) -> str:
    """Connections come behind `way`."""
    if "way" in request.fixturenames:
        request.getfixturevalue("way")
    return in_schema(distributed_url)


@pytest.fixture
async def log(database: Database, now: datetime) -> Log:
    return await make_log(database, now, next(_NAMES))


@dataclass
class Killing:
    """One of them is killed in the midst of what commits on the coordinator and on a node, and comes back."""

    nodes: Nodes
    database: Database
    way: Way

    @property
    def name(self) -> str:
        return str(make_url(self.database.url).database)

    async def in_the_midst_of(self, begin: Callable[[], Awaitable[object]]) -> None:
        coordinator, workers = self.nodes.coordinator, self.nodes.workers
        held = [coordinator] if self.way is Way.COMMITTED else workers
        async with AsyncExitStack() as stack:
            for node in held:
                await stack.enter_async_context(commits_held(node))
            acting = asyncio.ensure_future(begin())
            await eventually(lambda: acting.done() or any(_waits(node, self.name) for node in held))
            assert not acting.done(), acting
            [waiting] = [node for node in held if _waits(node, self.name)]
            killed = waiting if self.way in (Way.NODE_GOES, Way.NODE_GOES_BY_ITSELF) else coordinator
            killed.stop("immediate")
            with suppress(BrokerError):
                await acting
            if killed is not coordinator:
                killed.start()
            prepared = self.prepared()
            if killed is coordinator:
                killed.start()
        assert prepared == (1 if self.way.is_mended else 0)
        await eventually(lambda: not any(_waits(node, self.name) for node in held))
        await eventually(self._answers)
        coordinator.ask("SELECT recover_prepared_transactions()", database=self.name)
        assert self.prepared() == 0

    def prepared(self) -> int:
        """How many transactions of the database nodes have prepared."""
        return _prepared_at(self.nodes, self.database)

    async def _answers(self) -> bool:
        with suppress(BrokerError):
            await self.database.now()
            async with self.database.transaction() as connection:
                await connection.execute(text("SELECT 1"))
            return True
        return False


def _prepared_at(nodes: Nodes, database: Database) -> int:
    query, name = "SELECT count(*) FROM pg_prepared_xacts WHERE database = %s", make_url(database.url).database
    return sum(worker.ask(query, name)[0][0] for worker in nodes.workers)


@pytest.fixture
def killing(citus_nodes: Nodes, database: Database, way: Way) -> Killing:
    return Killing(citus_nodes, database, way)


@asynccontextmanager
async def commits_held(node: Node) -> AsyncIterator[None]:
    """Within the block they wait, on the node's disk, for a standby that is not there."""

    async def commit() -> None:
        while True:
            await probe.execute(b"SELECT pg_logical_emit_message(true, '', '')")

    async with await psycopg.AsyncConnection.connect(node.url(), autocommit=True) as probe:
        node.ask("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        node.ask("SELECT pg_reload_conf()")
        committing = asyncio.ensure_future(commit())
        await eventually(lambda: _waits(node, "postgres"))
        try:
            yield
        finally:
            node.ask("ALTER SYSTEM RESET synchronous_standby_names")
            node.ask("SELECT pg_reload_conf()")
            committing.cancel()
            with suppress(asyncio.CancelledError, psycopg.Error):
                await committing


def _waits(node: Node, database: str) -> bool:
    query = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = %s AND wait_event = 'SyncRep')"
    return node.ask(query, database) == [(True,)]


@EACH_WAY
async def test_what_an_application_has_committed_is_relayed_once(
    killing: Killing, outbox_log: OutboxLog, application: Application
) -> None:
    with application.session() as session:
        publish(session, "once", topic=outbox_log.log.topic.name)
    await killing.in_the_midst_of(outbox_log.relay().run_once)
    relay = outbox_log.relay()
    while await relay.run_once():
        pass
    assert await outbox_log.came() == ["once"] * killing.way.times


@AT_A_NODE
async def test_a_tick_is_one_message(killing: Killing, log: Log) -> None:
    clock, tasks = schedules.Hand(log.database), Tasks()
    clock.moment = log.start
    office = schedules.Office(log, clock, tasks)
    await office.put()
    office.after(1.25)
    await killing.in_the_midst_of(partial(office.ticker().tick_due, schedules.PROJECT))
    ticker = office.ticker()
    while await ticker.tick_due(schedules.PROJECT):
        pass
    assert await office.came() == [1] * killing.way.times
    assert [record.number for record in await office.history()] == [1]
    async with log.database.transaction() as connection:
        await store.delete_schedule(connection, name=schedules.NAME)
    await tasks.close()


@AT_A_NODE
async def test_a_step_of_an_operation_is_done_once(killing: Killing, log: Log) -> None:
    clock, tasks = DatabaseClock(log.database), Tasks()
    await clock.synchronise()
    office = copying.Office(log, await make_log(log.database, log.start, next(_NAMES)), clock, tasks)
    await log.publish("a", "b")
    name = await office.start()
    await killing.in_the_midst_of(office.runner(office.kind()).run_once)
    ended = await office.run(office.runner(office.kind()), name=name)
    assert (ended.state, ended.done) == ("SUCCEEDED", 2)
    assert sorted(await office.copied()) == sorted(["a", "b"] * killing.way.times)
    await tasks.close()


@pytest.mark.parametrize("way", OF_THE_COORDINATOR, indirect=True)
async def test_a_topic_is_deleted_or_takes_messages(killing: Killing, log: Log) -> None:
    async def delete() -> None:
        async with log.database.transaction() as connection:
            await topics.delete_topic(connection, topic=log.topic)

    await killing.in_the_midst_of(delete)
    async with log.database.transaction() as connection:
        found = await topics.find_topic(connection, name=log.topic.name)
    message = encode_messages([NewMessage(data=b"later")])
    async with log.database.hot() as hot:
        takes = await append_messages(hot, shard_id=log.shard_id, requests=[message], now=log.start)
    assert (found is not None, takes is not None) == {
        Way.NODE_IS_DONE: (True, True),
        Way.COMMITTED: (False, False),
        Way.BY_ITSELF: (True, False),
    }[killing.way]


@AT_A_NODE
async def test_an_application_may_say_it_too_whose_own_tables_lie_on_nodes(
    killing: Killing, outbox_log: OutboxLog, application: Application
) -> None:
    with psycopg.connect(application.admin_url, autocommit=True) as admin:
        admin.execute("SELECT create_distributed_table('shop.orders', 'id')")
        admin.execute(f'GRANT USAGE ON SCHEMA broker TO "{application.role}"')
        admin.execute(f'GRANT UPDATE ON broker.two_phases TO "{application.role}"')

    def order() -> None:
        with suppress(psycopg.OperationalError), application.session() as session:
            session.execute("INSERT INTO orders (id) VALUES (1)")
            publish(session, "ordered", topic=outbox_log.log.topic.name)
            if killing.way.is_mended:
                session.execute("UPDATE broker.two_phases SET said = true")

    await killing.in_the_midst_of(lambda: asyncio.to_thread(order))
    assert not await outbox_log.relay().run_once()
    orders = await _number(outbox_log.log.database, "SELECT count(*) FROM shop.orders")
    assert (orders, await outbox_log.came()) == (0 if killing.way.is_mended else 1, [])


@asynccontextmanager
async def before_nodes_hear(
    nodes: Nodes, database: Database, act: Callable[[], Awaitable[object]]
) -> AsyncIterator[None]:
    """Within the block the coordinator has committed what `act` does, and nodes have prepared it."""
    name = str(make_url(database.url).database)
    async with AsyncExitStack() as stack:
        async with commits_held(nodes.coordinator):
            acting = asyncio.ensure_future(act())
            await eventually(lambda: _waits(nodes.coordinator, name))
            for worker in nodes.workers:
                await stack.enter_async_context(commits_held(worker))
        await eventually(lambda: any(_waits(worker, name) for worker in nodes.workers))
        yield
    await acting


@pytest.mark.parametrize("waits", [True, False])
async def test_who_goes_on_from_the_catalog_to_shards_waits_until_nodes_have_heard(
    citus_nodes: Nodes, database: Database, now: datetime, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a subscription to a topic that was just made would have no cursor, and get nothing, ever."""
    name = next(_NAMES)
    if not waits:
        monkeypatch.setattr(topics, "wait_until_heard", lambda _: asyncio.sleep(0))

    async def make_topic() -> None:
        async with database.transaction() as connection:
            wanted = Topic(name=f"projects/p/topics/{name}")
            await topics.insert_topic(connection, topic=wanted, shard_count=1, now=now)

    async def subscribe() -> Log:
        async with database.transaction() as connection:
            await topics.share_topic(connection, name=f"projects/p/topics/{name}")
            topic = await topics.find_topic(connection, name=f"projects/p/topics/{name}")
            assert topic is not None
            return Log(database, now, topic, await add_subscription(connection, topic, f"{name}-sub", now))

    async with before_nodes_hear(citus_nodes, database, make_topic):
        subscribing = asyncio.ensure_future(subscribe())
        if waits:
            with pytest.raises(Unavailable, match="A node has not heard yet how an earlier change ended"):
                await subscribing
        else:
            await eventually(lambda: _prepared_at(citus_nodes, database) > 1)
    log = await (subscribe() if waits else subscribing)
    await log.publish("for it")
    assert await log.pull_texts(now=now + SECOND) == (["for it"] if waits else [])


@AT_A_NODE
async def test_a_transaction_of_a_session_that_commits_by_itself_is_one(killing: Killing, log: Log) -> None:
    topic, shard = f"topic_id = {log.topic.topic_id}", f"shard_id = {log.shard_id}"

    async def change() -> None:
        async with log.database.connection() as connection:
            with translate_errors():
                async with connection.transaction():
                    await connection.execute(_LABEL, [log.topic.topic_id])
                    await connection.execute(_CLOSE, [log.shard_id])

    await killing.in_the_midst_of(change)
    labelled = await _number(
        log.database, f"SELECT count(*) FROM topics WHERE settings -> 'labels' <> '{{}}' AND {topic}"
    )
    closed = await _number(log.database, f"SELECT count(*) FROM shards WHERE NOT open AND {shard}")
    assert [labelled, closed] == [0, 1 if killing.way is Way.BY_ITSELF else 0]


async def _number(database: Database, query: str) -> int:
    async with database.connection() as connection:
        row = await (await connection.execute(query.encode())).fetchone()
    assert row is not None
    return int(row[0])


_MARK_TOPIC = Statement(b"mark_topic", b"UPDATE topics SET settings = '{}' WHERE topic_id = $1", (("id", "int8"),))
_MARK_SHARD = Statement(b"mark_shard", b"UPDATE shards SET open = true WHERE shard_id = $1", (("id", "int8"),))


async def test_nobody_waits_for_another_and_nothing_grows(database: Database, now: datetime) -> None:
    logs = [await make_log(database, now, next(_NAMES)) for _ in range(2)]
    async with database.hot() as one, database.hot() as other:
        both = list(zip((one, other), logs, strict=True))
        for connection, log in both:
            marks = (_MARK_TOPIC, {"id": log.topic.topic_id}), (_MARK_SHARD, {"id": log.shard_id})
            await connection.run((BEGIN, {}), *marks)
        for connection, _ in both:
            await connection.run((COMMIT, {}))
    size = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relname LIKE 'two_phases%'"
    assert await _number(database, size) == 0


async def test_a_commit_that_does_not_end_is_told(
    database: Database,
    distributed_url: str,
    citus_nodes: Nodes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, worker, states = str(make_url(distributed_url).database), citus_nodes.workers[1], StateChanges()
    caplog.set_level(logging.INFO)
    worker.ask(f"BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION '{name}'", database=name)

    async def attribution(doctor: bool) -> list[str]:
        caplog.clear()
        async with database.connection() as connection:
            await report_in_doubt(connection, now=datetime.now(UTC), states=states)
        if not doctor:
            return [record.getMessage() for record in caplog.records if record.name == "broker.state"]
        found = await asyncio.to_thread(lambda: list(inspect_database(in_schema(distributed_url))))
        return [finding.finding for finding in found if finding.check == "prepared transaction"]

    assert await attribution(False) == await attribution(True) == []  # it is young
    for module in (in_doubt, prepared_transactions):
        monkeypatch.setattr(module, "LONG_SECONDS", -1)
    [line], [found] = await attribution(False), await attribution(True)
    assert line.endswith(f"{name}; SELECT recover_prepared_transactions() on the coordinator ends it")
    assert f"{worker.port} does not hear how a commit ended, and keeps its locks" in line
    assert f"{name} is prepared at {citus_nodes.directory}:{worker.port} for " in found
    assert await attribution(False) == []  # said once
    worker.ask(f"COMMIT PREPARED '{name}'", database=name)
    [line] = await attribution(False)
    assert f"{worker.port} has heard how all commits ended" in line
    assert await attribution(True) == []
