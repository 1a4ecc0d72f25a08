"""Hot statements by way of any worker (docs/decisions/0054): where they go, what goes to the coordinator all the
same, and what is refused.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from sqlalchemy import make_url

from broker.db.driver.database import Database
from broker.db.schema.hot_nodes import HotNodes, inspect_nodes
from broker.features.inspect.fleet.database_checks import inspect_hot_nodes
from broker.model.message_id import parse_message_id
from tests.citus.test_hot_statements import _statements, _text, _where
from tests.cli.processes import complaint
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message
from tests.fixtures.citus import NEEDS_CITUS, Nodes
from tests.fixtures.database import in_schema
from tests.fixtures.log import Log, make_log
from tests.query_plans.every_statement import every_statement_sent

pytestmark = NEEDS_CITUS

_NUMBERS_OF_WORKERS = 2**48  # and above
# Whose statements publishes, claims and acks send there.
_OF_A_SHARD = {
    *("claim", "due", "fresh", "ordered", "bodies", "waiting", "write", "delivery_attempts", "messages", "shards"),
    *("traces", "acknowledge_citus", "append_messages_citus", "lock_due_attempts_citus"),
}
_HAS_OTHERS_IN_ITS_PLACE = {"delivery_attempts._MODIFY_ACK_DEADLINE"}


async def test_each_statement_about_a_shard_goes_to_it_from_a_worker(
    clone: Callable[[], Any], distributed_url: str, citus_nodes: Nodes
) -> None:
    with clone() as database_url:
        async with every_statement_sent(database_url) as recorder:
            sent = recorder.sent
    asked = {name: each for name, each in _statements().items() if name.partition(".")[0] in _OF_A_SHARD}
    for worker in citus_nodes.workers:
        url = in_schema(worker.url(str(make_url(distributed_url).database)))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SET enable_seqscan = off")
            found = {name: _where(connection, _text(each, sent[each])) for name, each in asked.items()}
        assert {name for name, where in found.items() if where} == _HAS_OTHERS_IN_ITS_PLACE


async def _attribution(log: Log) -> list[tuple[str, bool]]:
    """The events of the journal in the order of their numbers, and whether those are the coordinator's."""
    where = f"shard_id = {log.shard_id}"
    rows = await log.rows(f"SELECT event, number FROM delivery_journal WHERE {where} ORDER BY number")
    return [(event, number < _NUMBERS_OF_WORKERS) for event, number in rows]


async def _publish_old_and_new(log: Log) -> datetime:
    later = log.start + timedelta(minutes=2)
    await log.publish("old", "old")
    await log.publish("new", now=later)
    return later


async def test_a_claim_that_tells_what_expired_goes_to_the_coordinator(
    through: tuple[Database, datetime],
) -> None:
    database, now = through
    for name in ("expiring", "again"):  # on a connection that was used so before
        log = await make_log(database, now, name)
        later = await _publish_old_and_new(log)
        assert await log.pull_texts(now=later, retention=timedelta(minutes=1)) == ["new"]
        assert await _attribution(log) == [("EXPIRED", True)]
        async with database.at_any_node() as connection:
            assert not connection.gives_numbers
            assert not connection.in_transaction


async def test_a_worker_would_give_the_journal_other_numbers(through: tuple[Database, datetime]) -> None:
    """What the claim is sent to the coordinator for."""
    database, now = through
    log = await make_log(database, now, "numbers")
    later = await _publish_old_and_new(log)
    async with database.at_any_node() as connection:
        connection.gives_numbers = True
        await log.claim(now=later, retention=timedelta(minutes=1), connection=connection)
        connection.gives_numbers = False
    assert await _attribution(log) == [("EXPIRED", False)]


@pytest.fixture(scope="module")
def served(distributed_url: str) -> Iterator[str]:
    """The URL of a broker whose hot statements go to workers."""
    options = ("--database-url", distributed_url, "--hot-database-url", Nodes.hot_url(distributed_url))
    broker = BrokerProcess(*options, "--port", "0").wait_until_ready()
    yield broker.url
    assert broker.stop() == 0
    assert not [line for line in broker.log if "Traceback" in line or " ERROR " in line], "\n".join(broker.log)


@pytest.fixture
async def rest(served: str, project: str) -> AsyncIterator[Rest]:
    async with httpx.AsyncClient(base_url=served, timeout=60, verify=NO_TLS) as client:
        yield Rest(client, project)


@pytest.mark.parametrize("kind", [{}, {"enableExactlyOnceDelivery": True}, {"enableMessageOrdering": True}])
async def test_a_journal_tells_each_step_in_its_order(rest: Rest, distributed_url: str, kind: Json) -> None:
    await rest.create_topic()
    await rest.create_subscription(extensions={"journal": {"mode": "ALL"}}, **kind)
    await rest.publish({"orderingKey": "k"} | message("1"))
    received = await rest.pull()
    await rest.modify_ack_deadline(received, 30)
    await rest.modify_ack_deadline(received, 0)
    await rest.acknowledge(await rest.pull(wait=True))
    with psycopg.connect(in_schema(distributed_url)) as connection:
        attribution = connection.execute(
            "SELECT event, number FROM delivery_journal WHERE subscription_id ="
            " (SELECT subscription_id FROM subscriptions WHERE name = %s) ORDER BY number",
            [rest.subscription()],
        ).fetchall()
    assert [event for event, _ in attribution] == ["HANDED_OUT", "EXTENDED", "NACKED", "HANDED_OUT", "ACKED"]
    assert max(number for _, number in attribution) < _NUMBERS_OF_WORKERS


async def test_publishes_without_a_key_use_all_shards_and_ids_are_short(rest: Rest) -> None:
    await rest.create_topic(extensions={"shards": 4})
    await rest.create_subscription()
    ids = [id_ for _ in range(12) for id_ in await rest.publish("a", "b")]
    shards = {parse_message_id(id_)[0] for id_ in ids}
    assert len(shards) == 4
    assert max(shards) < _NUMBERS_OF_WORKERS
    assert sorted(each["message"]["messageId"] for each in await rest.drain()) == sorted(ids)


# --- what is refused ----------------------------------------------------------------------------------------------


def test_nodes_of_the_cluster_are_taken_and_one_may_be_away(distributed_url: str, citus_nodes: Nodes) -> None:
    where = str(citus_nodes.directory)
    found = inspect_nodes(distributed_url, Nodes.hot_url(distributed_url), "broker")
    assert found == HotNodes("", [f"{where}:{worker.port}" for worker in citus_nodes.workers], [])
    assert inspect_nodes(distributed_url, distributed_url, "broker").answer == [f"{where}:5432"]
    one = Nodes.hot_url(distributed_url).replace("5434", "5499")
    found = inspect_nodes(distributed_url, one, "broker")
    assert (found.problem, found.answer) == ("", [f"{where}:5433"])
    assert [why.partition(": ")[0] for why in found.away] == [f"{where}:5499"]
    assert [state for _, state, *_ in inspect_hot_nodes(distributed_url, one)] == ["warning", "ok"]


def test_other_servers_are_refused(distributed_url: str, citus_nodes: Nodes, database_url: str) -> None:
    elsewhere = citus_nodes.workers[0].url()
    for other in (elsewhere, database_url):
        found = inspect_nodes(distributed_url, other, "broker")
        assert "is no node of this Citus cluster, or has no schema broker" in found.problem
    [finding] = inspect_hot_nodes(distributed_url, elsewhere)
    problem = inspect_nodes(distributed_url, elsewhere, "broker").problem
    assert (finding.state, finding.finding) == ("error", problem)
    said = complaint("serve", "--database-url", distributed_url, "--hot-database-url", elsewhere, "--port", "0")
    assert "is no node of this Citus cluster" in said
    nobody = distributed_url.replace("5432", "5499")
    said = complaint("serve", "--database-url", distributed_url, "--hot-database-url", nobody, "--port", "0")
    assert "none of the nodes of --hot-database-url answers" in said
    with psycopg.connect(in_schema(distributed_url)) as connection:
        assert connection.execute("SELECT count(*) FROM cursors WHERE shard_id < 0").fetchone() == (0,)
