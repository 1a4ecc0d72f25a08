"""A database of a Citus cluster: served where the broker's tables are plain, refused where they are distributed."""

import re
from collections.abc import Callable, Iterator

import httpx
import psycopg
import pytest
from psycopg.errors import FeatureNotSupported

from broker.cli.database_doctor import look_at_database
from broker.cli.schema import check_schema
from broker.cli.stop import Stop
from broker.store.schema import migrations
from tests.fixtures.broker import NO_TLS, BrokerProcess
from tests.fixtures.citus import NEEDS_CITUS, Nodes

pytestmark = NEEDS_CITUS


@pytest.fixture
def citus_url(citus_nodes: Nodes) -> Iterator[str]:
    """A migrated database on a coordinator and two workers."""
    with citus_nodes.database() as url:
        migrations.upgrade(url)
        yield url


def ask(url: str, query: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(query.encode())


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


def is_refused(url: str, tables: str) -> None:
    said = f"tables of the schema broker are distributed over the nodes of Citus ({tables})"
    with pytest.raises(Stop, match=re.escape(said)):
        check_schema(url, "")
    found = [text for name, state, text, _ in look_at_database(url) if (name, state) == ("schema", "mend")]
    assert [text[: len(said)] for text in found] == [said]


def test_distributed_tables_are_refused_until_they_are_taken_back(citus_url: str) -> None:
    for distribute, table in (
        ("create_distributed_table('broker.message_batches', 'shard_id')", "message_batches"),
        ("create_reference_table('broker.push_states')", "push_states"),
        ("citus_add_local_table_to_metadata('broker.cursors')", "cursors"),
    ):
        ask(citus_url, f"SELECT {distribute}")
        is_refused(citus_url, table)
        ask(citus_url, f"SELECT undistribute_table('broker.{table}')")
        assert check_schema(citus_url, "").schema == "broker"


def test_a_table_with_an_identity_is_not_taken_back(citus_url: str) -> None:
    for table in ("shards", "cursors", "delivery_attempts", "straggler_batches"):
        ask(citus_url, f"SELECT create_distributed_table('broker.{table}', 'shard_id')")
    is_refused(citus_url, "cursors, delivery_attempts, shards and 1 more")
    with pytest.raises(FeatureNotSupported, match="identity column"):
        ask(citus_url, "SELECT undistribute_table('broker.shards')")


def test_tables_of_others_may_be_distributed(citus_url: str) -> None:
    ask(citus_url, "CREATE TABLE public.shards (id bigint)")
    ask(citus_url, "SELECT create_distributed_table('public.shards', 'id')")
    assert check_schema(citus_url, "").schema == "broker"
