"""What a connection to a worker of a cluster cannot write is written by way of the coordinator (L1)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from broker.core.claiming.transaction.claim import claim_messages
from broker.core.claiming.transaction.request import ClaimRequest, ClaimTarget
from broker.core.context.readiness import check_ready
from broker.db.driver.connection_parameters import connection_parameters, each_host, in_any_order
from broker.db.driver.database import DATABASE, NODES, Database
from broker.db.driver.hot_connection import HotConnection, NeedsCoordinator
from broker.db.driver.statements import BEGIN, COMMIT, Statement
from broker.model.delivery import DeliveryRequest
from broker.model.errors import Unavailable
from broker.model.journal import Journal, JournalMode
from broker.observability.state_changes import StateChanges
from tests.fixtures.log import ACK_DEADLINE, SECOND, Log

MINUTE = timedelta(minutes=1)
_ONE = Statement(b"one", b"SELECT 1")


@asynccontextmanager
async def at_worker(log: Log) -> AsyncIterator[HotConnection]:
    """A session that takes its server for one that gives numbers of its own to rows of the journal."""
    async with log.database.hot() as connection:
        connection.gives_numbers = False
        try:
            yield connection
        finally:
            connection.gives_numbers = True


async def _publish_old_and_new(log: Log) -> datetime:
    later = log.start + 2 * MINUTE
    await log.publish("old")
    await log.publish("new", now=later)
    return later


@pytest.mark.one_server("it locks rows of all shards")
async def test_a_claim_that_meets_what_expired_changes_nothing_there(log: Log) -> None:
    later = await _publish_old_and_new(log)
    cursors = "SELECT next_publish_time, next_seq, due_floor FROM cursors"
    before = await log.rows(cursors)
    async with at_worker(log) as worker:
        with pytest.raises(NeedsCoordinator):
            await log.claim(now=later, retention=MINUTE, connection=worker)
        assert await log.rows(cursors) == before
        assert await log.attempts() == []
        # Nothing is locked: nobody waits, and nothing is passed over as another's.
        assert await log.rows("SELECT count(*) FROM (SELECT FROM cursors FOR UPDATE SKIP LOCKED) AS c") == [(1,)]
        assert await log.pull_texts(now=later, retention=MINUTE) == ["new"]
        await log.publish("next", now=later + SECOND)
        [delivery] = await log.pull(now=later + SECOND, retention=MINUTE, connection=worker)  # it is used on
        assert [message.data for message in delivery.messages] == [b"next"]
    assert await log.rows("SELECT event FROM delivery_journal") == [("EXPIRED",)]


async def test_a_claim_for_a_journal_locks_nothing_there(log: Log) -> None:
    await log.publish("a")
    target = ClaimTarget(
        subscription_id=log.subscription.subscription_id,
        requests=[DeliveryRequest(max_messages=1, max_bytes=1_000)],
        ack_deadline=ACK_DEADLINE,
        retained_since=log.start - MINUTE,
        journal=Journal(mode=JournalMode.ALL),
    )
    request = ClaimRequest(shard_id=log.shard_id, targets=[target], now=log.start)
    async with at_worker(log) as worker:
        with pytest.raises(NeedsCoordinator):
            await claim_messages(worker, request, log.attempt_ids)
        assert not worker.in_transaction
    assert await log.pull_texts() == ["a"]


async def test_what_is_undone_leaves_a_connection_that_begins_anew(log: Log) -> None:
    async with log.database.hot() as connection:
        await connection.run((BEGIN, {}), (_ONE, {}))
        await connection.undo()
        assert not connection.in_transaction
        assert await connection.run((BEGIN, {}), (_ONE, {}), (COMMIT, {})) == [[], [(1,)], []]


@pytest.mark.one_server("it is one that is no Citus")
async def test_a_server_without_distributed_tables_is_no_node(database_url: str) -> None:
    """It was given another role while the broker ran: nothing is read or written there."""
    states = StateChanges()
    database = Database(database_url, hot_url=database_url, states=states)
    try:
        await check_ready(database)
        with pytest.raises(Unavailable):
            async with database.at_any_node():
                raise AssertionError
        assert states.lasts(*NODES)
        assert not states.lasts(*DATABASE)
        with pytest.raises(Unavailable, match="None of the nodes"):
            await check_ready(database)
        async with database.hot() as connection:  # all else goes on
            assert await connection.run((_ONE, {})) == [[(1,)]]
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("postgresql://u@/d", [{}]),
        ("postgresql://u@a/d", [{"host": "a"}]),
        ("postgresql://u@a:1,b:2/d", [{"host": "a", "port": "1"}, {"host": "b", "port": "2"}]),
        ("host=a,b port=5 dbname=d", [{"host": "a", "port": "5"}, {"host": "b", "port": "5"}]),
    ],
)
def test_each_server_of_a_url(url: str, hosts: list[dict[str, str]]) -> None:
    parameters = connection_parameters(url, schema="broker")
    found = each_host(parameters)
    assert [{name: each[name] for name in ("host", "port") if each.get(name)} for each in found] == hosts
    orders = {str(in_any_order(parameters, first=len(hosts) - 1).get("host")) for _ in range(50)}
    assert {order.split(",")[0] for order in orders} == {hosts[-1].get("host", "None")}
    assert all(sorted(order.split(",")) == sorted(each.get("host", "None") for each in hosts) for order in orders)
