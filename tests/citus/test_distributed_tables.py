"""A database of a Citus cluster: how its tables are distributed, and what of that no broker serves."""

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.errors import FeatureNotSupported
from sqlalchemy import make_url

from broker.cli.server.schema import check_schema
from broker.client.stop import Stop
from broker.core.log.partitions import drop_detached_leftovers, drop_partition, list_partitions
from broker.core.retention.retention import drop_partitions_behind
from broker.db.citus import engine
from broker.db.citus.distributed_tables import TABLES
from broker.db.driver.database import Database
from broker.db.schema import migrations
from broker.db.schema.schema_state import DatabaseUnreachable, inspect
from broker.features.inspect.fleet.database_checks import inspect_database
from tests.fixtures.broker import NO_TLS, BrokerProcess
from tests.fixtures.citus import NEEDS_CITUS, Nodes
from tests.fixtures.database import begin, in_schema

pytestmark = NEEDS_CITUS


@pytest.fixture
def citus_url(citus_nodes: Nodes) -> Iterator[str]:
    """A migrated database on a coordinator and two workers."""
    with citus_nodes.database() as url:
        migrations.upgrade(url)
        yield url


def ask(url: str, query: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query.encode())
        return cursor.fetchall() if cursor.description else []


def test_plain_tables_beside_the_extension_are_served(
    citus_url: str, start_broker: Callable[..., BrokerProcess], project: str
) -> None:
    broker = start_broker("--database-url", citus_url, "--port", "0")
    with httpx.Client(base_url=f"{broker.url}/v1/{project}/", verify=NO_TLS, timeout=30) as client:
        client.put("topics/topic", json={}).raise_for_status()
        client.put("subscriptions/sub", json={"topic": f"{project}/topics/topic"}).raise_for_status()
        messages = [{"data": "aGk="}] * 50
        client.post("topics/topic:publish", json={"messages": messages}).raise_for_status()
        pulled = client.post("subscriptions/sub:pull", json={"maxMessages": 100}).raise_for_status().json()
        ids = [received["ackId"] for received in pulled["receivedMessages"]]
        assert len(ids) == len(messages)
        client.post("subscriptions/sub:acknowledge", json={"ackIds": ids}).raise_for_status()
    assert not [line for line in broker.log if " ERROR " in line or "fails" in line]


def is_refused(url: str, said: str) -> None:
    with pytest.raises(Stop, match=re.escape(said)):
        check_schema(url, "")
    found = [text for name, state, _, text, _ in inspect_database(url) if (name, state) == ("schema", "error")]
    assert said in "; ".join(found)


def test_distributed_tables_are_refused_until_they_are_taken_back(citus_url: str) -> None:
    ask(citus_url, "CREATE TABLE broker.two_phases (said boolean)")
    for distribute, table in (
        ("create_distributed_table('broker.message_batches', 'shard_id')", "message_batches"),
        ("create_reference_table('broker.push_states')", "push_states"),
        ("citus_add_local_table_to_metadata('broker.cursors')", "cursors"),
        ("create_distributed_table('broker.cursors', 'subscription_id')", "cursors"),
        ("create_reference_table('broker.two_phases')", "two_phases"),
    ):
        ask(citus_url, f"SELECT {distribute}")
        is_refused(citus_url, f"known to Citus in a way that no broker can serve ({table})")
        with pytest.raises(DatabaseUnreachable, match=f"in another way .{table}."):
            migrations.distribute_tables(citus_url)
        ask(citus_url, f"SELECT undistribute_table('broker.{table}')")
        assert check_schema(citus_url, "").schema == "broker"


def test_a_table_with_an_identity_is_not_taken_back(citus_url: str) -> None:
    for table in ("shards", "cursors", "delivery_attempts", "straggler_batches"):
        ask(citus_url, f"SELECT create_distributed_table('broker.{table}', 'shard_id')")
    is_refused(
        citus_url, "must lie with them are not (message_batches, delivery_journal, snapshot_positions and 7 more)"
    )
    with pytest.raises(FeatureNotSupported, match="identity column"):
        ask(citus_url, "SELECT undistribute_table('broker.shards')")
    migrations.distribute_tables(citus_url)
    assert check_schema(citus_url, "").schema == "broker"


def test_a_worker_is_no_coordinator(citus_nodes: Nodes, citus_url: str) -> None:
    migrations.distribute_tables(citus_url)
    worker = citus_nodes.workers[0].url(str(make_url(citus_url).database))
    for refused in (check_schema, lambda url, _: migrations.distribute_tables(url)):
        with pytest.raises((Stop, DatabaseUnreachable), match="a worker of"):
            refused(worker, "")


def test_nodes_that_lose_what_was_answered_are_refused(citus_nodes: Nodes, citus_url: str) -> None:
    migrations.distribute_tables(citus_url)
    name, worker = str(make_url(citus_url).database), citus_nodes.workers[1]
    worker.ask(f"ALTER DATABASE {name} SET synchronous_commit = off")
    worker.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", name)
    is_refused(citus_url, f"{worker.port} of the Citus cluster has synchronous_commit = off")


def test_a_schema_is_refused_where_what_is_sent_together_is_not_undone_together(
    citus_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrations.distribute_tables(citus_url)
    monkeypatch.setattr(
        engine, "CITUS", replace(engine.CITUS, whole_pipelines=True)
    )  # no BEGIN: what is to be found
    assert inspect(citus_url).problem.startswith(
        "what is sent to the Citus cluster as one transaction is not undone"
    )
    monkeypatch.undo()
    assert inspect(citus_url).problem == ""
    assert ask(citus_url, "SELECT count(*) FROM broker.cursors") == [(0,)]


def test_tables_of_others_may_be_distributed(citus_url: str) -> None:
    ask(citus_url, "CREATE TABLE public.shards (id bigint)")
    ask(citus_url, "SELECT create_distributed_table('public.shards', 'id')")
    assert check_schema(citus_url, "").schema == "broker"


@pytest.fixture
async def distributed(citus_url: str) -> AsyncIterator[Database]:
    """A database whose tables of messages lie on the two workers, and its partitions around now."""
    assert migrations.distribute_tables(citus_url) == len(TABLES) + 1
    database = Database(in_schema(citus_url), pool_size=2)
    await begin(database)
    yield database
    await database.close()


def test_tables_are_distributed_once_and_with_their_rows(citus_url: str) -> None:
    eight = "SELECT 1, n, now() FROM generate_series(1, 8) AS n"
    ask(citus_url, f"INSERT INTO broker.shards (topic_id, ordinal, last_publish_time) {eight}")
    assert migrations.distribute_tables(citus_url) == len(TABLES) + 1
    assert migrations.distribute_tables(citus_url) == 0
    assert ask(citus_url, "SELECT count(*) FROM broker.shards") == [(8,)]
    assert ask(citus_url, "SELECT pg_relation_size('broker.shards')") == [(0,)]
    topics = "SELECT FROM pg_dist_partition WHERE logicalrelid = 'broker.topics'::regclass"
    assert ask(citus_url, topics) == []


def test_tables_are_not_distributed_beside_brokers(citus_url: str) -> None:
    ask(citus_url, "INSERT INTO broker.processes VALUES ('a', now(), '0001_baseline', NULL, 18)")
    with pytest.raises(DatabaseUnreachable, match="broker processes are at work on the schema broker, 1 of them"):
        migrations.distribute_tables(citus_url)
    assert check_schema(citus_url, "").schema == "broker"  # nothing has changed


def test_a_table_of_a_newer_version_is_distributed_beside_brokers(citus_url: str) -> None:
    for table in TABLES[:-1]:
        beside = "default" if table == TABLES[0] else f"broker.{TABLES[0]}"
        ask(
            citus_url, f"SELECT create_distributed_table('broker.{table}', 'shard_id', colocate_with => '{beside}')"
        )
    ask(citus_url, "INSERT INTO broker.processes VALUES ('a', now(), '0001_baseline', NULL, 18)")
    assert migrations.distribute_tables(citus_url) == 2


def test_what_was_distributed_before_transactions_were_one_is_refused_until_it_is_done_again(
    citus_url: str,
) -> None:
    migrations.distribute_tables(citus_url)
    ask(citus_url, "INSERT INTO broker.processes VALUES ('a', now(), '0001_baseline', NULL, 18)")
    ask(citus_url, "DROP TABLE broker.two_phases")
    is_refused(citus_url, "has no table two_phases, by which Citus keeps all of a transaction or nothing")
    assert migrations.distribute_tables(citus_url) == 1  # beside brokers
    assert check_schema(citus_url, "").schema == "broker"


def test_the_coordinator_must_be_known_to_its_cluster(citus_url: str) -> None:
    ask(citus_url, "SELECT citus_remove_node(nodename, nodeport) FROM pg_dist_node WHERE groupid = 0")
    with pytest.raises(DatabaseUnreachable, match="does not know where its coordinator is"):
        migrations.distribute_tables(citus_url)


def test_nothing_is_distributed_where_there_is_nothing_to_distribute_over(
    citus_nodes: Nodes, database_url: str
) -> None:
    with pytest.raises(DatabaseUnreachable, match="has no extension citus"):
        migrations.distribute_tables(database_url)
    with citus_nodes.database(workers=0) as url:
        migrations.upgrade(url)
        with pytest.raises(DatabaseUnreachable, match="has no node that takes shards"):
            migrations.distribute_tables(url)


async def test_partitions_come_and_go_within_the_distributed_table(distributed: Database) -> None:
    async with distributed.connection() as connection:
        first, *_ = before = await list_partitions(connection)
        cursor = await connection.execute(
            b"SELECT count(*) FROM pg_dist_partition WHERE logicalrelid::text ~ '^messages_'"
        )
        assert await cursor.fetchone() == (len(before),)
        assert await drop_partition(connection, first)
        assert first not in await list_partitions(connection)
        cursor = await connection.execute(b"SELECT to_regclass(%s)", [first.name])
        assert await cursor.fetchone() == (None,)
        assert await drop_detached_leftovers(connection) == 0


async def test_a_partition_that_somebody_holds_on_a_worker_stays(distributed: Database, citus_url: str) -> None:
    async with distributed.connection() as connection:
        first, *_ = await list_partitions(connection)
        async with await psycopg.AsyncConnection.connect(citus_url) as reader:
            await reader.execute(b"SELECT count(*) FROM broker.message_batches")
            assert not await drop_partition(connection, first)
        assert await drop_partition(connection, first)


async def test_no_space_is_given_back_while_a_node_has_not_heard_how_a_commit_ended(
    distributed: Database, citus_url: str, citus_nodes: Nodes
) -> None:
    """What it wrote may want the messages, unseen as yet; what held the janitor up has gone with its session."""
    name = str(make_url(citus_url).database)
    worker = citus_nodes.workers[1]
    now = datetime.now(UTC) + timedelta(days=30)
    worker.ask(f"BEGIN; SELECT pg_current_xact_id(); PREPARE TRANSACTION '{name}'", database=name)
    async with distributed.connection() as connection:
        before = await list_partitions(connection)
        assert await drop_partitions_behind(connection, database=distributed, now=now) == 0
        assert await list_partitions(connection) == before
        worker.ask(f"COMMIT PREPARED '{name}'", database=name)
        assert await drop_partitions_behind(connection, database=distributed, now=now) == len(before)
