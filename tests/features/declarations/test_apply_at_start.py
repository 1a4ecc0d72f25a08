"""`broker serve --apply`: a broker is ready only when the declarations hold."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.client.api import Api
from broker.client.credentials import read_credentials
from broker.db.driver.database import Database
from broker.features.declarations.declaring import turn_to_declare
from tests.cli.processes import complaint, faults
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, eventually
from tests.fixtures.in_process import running_in_process

pytestmark = [pytest.mark.slow, pytest.mark.ci]

StartBroker = Callable[..., BrokerProcess]

_SHOP = """
schemas:
  order:
    type: AVRO
    definition: '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
topics:
  orders: {schemaSettings: {schema: order, encoding: JSON}}
  letters: {}
"""
_READERS = """
subscriptions:
  billing:
    topic: orders
    filter: attributes.env = "prod"
    deadLetterPolicy: {deadLetterTopic: letters, maxDeliveryAttempts: 10}
    policy:
      bindings:
      - {role: roles/pubsub.subscriber, members: [allUsers]}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two that make one project; the second needs the first."""
    for name, text in (("shop.yaml", _SHOP), ("readers.yaml", _READERS)):
        (tmp_path / name).write_text(text)
    return ["--project", "shop", "--apply", str(tmp_path / "shop.yaml"), "--apply", str(tmp_path / "readers.yaml")]


def _get(broker: BrokerProcess, path: str) -> Json:
    answer = httpx.get(f"{broker.url}/v1/projects/shop/{path}", verify=NO_TLS)
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


def _applied(broker: BrokerProcess) -> list[str]:
    return [line for line in broker.log if line.startswith("Applied to ")]


@pytest.mark.timeout(300)  # it starts several brokers; only a hang takes so long
async def test_what_is_declared_is_there_once_a_broker_is_ready_and_two_that_start_at_once_do_it_once(
    clone: Callable[[], AbstractContextManager[str]], files: list[str], tmp_path: Path
) -> None:
    with clone() as database_url:
        both = await _waiting_for_their_turn(database_url, files)
        try:
            for broker in both:
                broker.wait_until_ready()
                assert _get(broker, "topics/orders")["schemaSettings"]["schema"] == "projects/shop/schemas/order"
                billing = _get(broker, "subscriptions/billing")
                assert billing["filter"] == 'attributes.env = "prod"'
                assert billing["labels"] == {"applied-by": "serve"}
                policy = _get(broker, "subscriptions/billing:getIamPolicy")
                assert policy["bindings"][0]["members"] == ["allUsers"]
            said = sorted(line for broker in both for line in _applied(broker))
            assert said == [
                "Applied to projects/shop: 0 created, 0 updated, 5 as they were.",
                "Applied to projects/shop: 3 created, 1 updated, 1 as they were.",
            ]
            assert len(_get(both[0], "schemas/order:listRevisions")["schemas"]) == 1
        finally:
            for broker in both:
                assert broker.stop() == 0
        assert not any(faults(broker) for broker in both)
        _changed(files, database_url, tmp_path)
        _refused(files, database_url, tmp_path)


async def _waiting_for_their_turn(database_url: str, files: list[str]) -> list[BrokerProcess]:
    """Two that start; until both are there somebody else has the turn, and makes a topic of the files meanwhile."""
    database = Database(database_url, pool_size=1)
    try:
        serving = running_in_process(Broker(AppConfig(database_url=database_url)))
        async with serving as client, turn_to_declare(database):
            both = [BrokerProcess("--database-url", database_url, "--port", "0", *files) for _ in range(2)]
            await eventually(lambda: _count_processes(database_url) == 3)
            (await client.put("/v1/projects/shop/topics/letters", json={})).raise_for_status()
        return both
    finally:
        await database.close()


def _count_processes(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT count(*) FROM processes").fetchone()
        return row[0] if row is not None else 0


def _changed(files: list[str], database_url: str, tmp_path: Path) -> None:
    """The next start brings what has changed; nothing is pruned."""
    changed = _SHOP.replace("letters: {}", "letters: {messageRetentionDuration: 7d}").replace("orders:", "others:")
    (tmp_path / "shop.yaml").write_text(changed)
    (tmp_path / "readers.yaml").write_text("{}")
    broker = BrokerProcess("--database-url", database_url, "--port", "0", *files).wait_until_ready()
    assert _applied(broker) == ["Applied to projects/shop: 1 created, 1 updated, 1 as they were."]
    assert _get(broker, "topics/letters")["messageRetentionDuration"] == "604800s"
    assert _get(broker, "topics/orders")["name"] == "projects/shop/topics/orders"
    assert broker.stop() == 0


def _refused(files: list[str], database_url: str, tmp_path: Path) -> None:
    """A start that cannot make it so ends, in one line."""
    serve = ("serve", "--database-url", database_url, "--port", "0", "--log-level", "error", *files)
    (tmp_path / "readers.yaml").write_text(_READERS.replace("topic: orders", "topic: letters"))
    assert "--apply: subscription projects/shop/subscriptions/billing: topic cannot be changed" in complaint(*serve)
    (tmp_path / "readers.yaml").write_text(
        _READERS.replace("topic: orders", "topic: nowhere").replace("billing", "shipping")
    )
    assert "topic names the topic nowhere, which does not exist" in complaint(*serve)
    (tmp_path / "readers.yaml").write_text(_READERS.replace('"prod"', "prod prod").replace("billing", "shipping"))
    said = complaint(*serve)
    assert said.startswith("--apply: subscription projects/shop/subscriptions/shipping: The filter is not valid: ")
    (tmp_path / "readers.yaml").write_text("subscriptions: {billing: {tropic: orders}}")
    assert "tropic" in complaint(*serve, code=2)


def test_a_file_that_is_not_there_or_has_no_project_is_a_mistake(files: list[str], tmp_path: Path) -> None:
    assert "--apply needs the project" in complaint("serve", "--apply", files[-1], code=2)
    missing = str(tmp_path / "none.yaml")
    assert "No such file" in complaint("serve", "--project", "shop", "--apply", missing, code=2)


def test_with_authentication_it_needs_no_key_and_is_in_the_audit_log(
    start_broker: StartBroker, data_dir: Path, files: list[str]
) -> None:
    broker = start_broker("--data-dir", str(data_dir), "--port", "0", "--auth", "required", *files)
    assert httpx.get(f"{broker.url}/v1/projects/shop/topics", verify=NO_TLS).status_code == 401
    assert _applied(broker) == ["Applied to projects/shop: 4 created, 1 updated, 0 as they were."]
    with Api(broker.url, read_credentials(str(data_dir / "admin-key.json"), "--credentials")) as api:
        entries = api.call("GET", "projects/shop/auditLogs")["entries"]
    methods = {each["protoPayload"]["methodName"].rpartition(".")[2] for each in entries}
    assert methods >= {"CreateSchema", "CreateTopic", "CreateSubscription", "SetIamPolicy"}, entries
    assert not any("authenticationInfo" in each["protoPayload"] for each in entries)
    assert broker.stop() == 0
    assert not faults(broker), json.dumps(broker.log)
