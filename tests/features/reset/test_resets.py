"""A project is made empty at once, for tests; an extension (G2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import psycopg
import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.core.catalog import subscription_rows as subscriptions
from broker.core.catalog import topic_rows as topics
from tests.core.pulling.stream import Streams
from tests.fixtures.broker import Rest, eventually, text
from tests.fixtures.in_process import running_in_process
from tests.interleavings.steps import until_waiting

AVRO = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}'
TABLES = [
    "topics",
    "subscriptions",
    "cursors",
    "push_states",
    "push_failures",
    "push_attempts",
    "breaker_changes",
    "snapshots",
    "snapshot_positions",
    "snapshot_outstanding",
    "payload_schemas",
    "payload_schema_revisions",
    "operations",
    "policies",
    "event_conditions",
    "waiting_events",
    "project_events",
]


@pytest.fixture
def brokers(database_url: str) -> list[Broker]:
    """Two processes on one database; pulls wait longer than tests have patience."""
    config = AppConfig(database_url=database_url, pull_wait_seconds=600, allow_reset=True)
    return [Broker(config) for _ in range(2)]


@pytest.fixture
async def two(brokers: list[Broker], project: str) -> AsyncIterator[tuple[Rest, Rest]]:
    """Their clients."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(running_in_process(broker)) for broker in brokers]
        yield Rest(clients[0], project), Rest(clients[1], project)


async def _furnish(rest: Rest, *, neighbour: bool = False) -> None:
    """One of everything that a project can have."""
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=order", {"type": "AVRO", "definition": AVRO})
    await rest.create_topic(schemaSettings={"schema": f"{rest.project}/schemas/order", "encoding": "JSON"})
    await rest.create_topic("letters")
    policy = {"deadLetterTopic": rest.topic("letters"), "maxDeliveryAttempts": 5}
    await rest.create_subscription(deadLetterPolicy=policy)
    for name in ("streamed", "waiting"):
        await rest.create_subscription(name, topic="letters")
    await rest.create_subscription("pushed", topic="letters", pushConfig={"pushEndpoint": "http://127.0.0.1:1/"})
    await rest.ok("POST", f"{rest.subscription('pushed')}:pausePush")
    await rest.ok("PUT", f"{rest.project}/snapshots/snap", {"subscription": rest.subscription()})
    await rest.ok("POST", f"{rest.subscription()}:redrive", {})
    schedule = {"topic": rest.topic("letters"), "message": {"data": "eA=="}, "schedule": "0 3 29 2 *"}
    await rest.ok("PUT", f"{rest.project}/schedules/nightly", schedule)
    bindings = {"policy": {"bindings": [{"role": "roles/pubsub.viewer", "members": ["allUsers"]}]}}
    await rest.ok("POST", f"{rest.project}:setIamPolicy", bindings)
    for name in (rest.topic(), rest.subscription(), f"{rest.project}/schemas/order"):
        await rest.ok("POST", f"{name}:setIamPolicy", bindings)
    if not neighbour:
        await rest.ok("PATCH", f"{rest.project}/settings", {"eventTopic": rest.topic("letters")})


def _rows(database_url: str) -> dict[str, int]:
    with psycopg.connect(database_url) as connection:
        return {table: _count(connection, table) for table in TABLES}


def _count(connection: psycopg.Connection[tuple[int]], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert row is not None
    return row[0]


async def test_all_that_a_project_has_is_gone_in_every_process_and_nothing_of_anybody_else(
    two: tuple[Rest, Rest], brokers: list[Broker], database_url: str
) -> None:
    rest, other = two
    neighbour = Rest(rest.client, f"{rest.project}x")
    await _furnish(neighbour, neighbour=True)
    await rest.ok("PUT", neighbour.topic("theirs"))
    before = _rows(database_url)
    await _furnish(rest)
    await neighbour.ok("PUT", neighbour.subscription("guest"), {"topic": rest.topic("letters")})
    await rest.publish("kept for the guest", topic="letters")
    await other.pull("streamed")
    streams = Streams(str(other.client.base_url), other)
    stream = await streams.open("streamed")
    await other.drain("waiting")
    pulls = [
        asyncio.create_task(each.call("POST", f"{rest.subscription('waiting')}:pull", {"maxMessages": 1}))
        for each in two
    ]
    await eventually(lambda: [len(broker.claiming.long_poll.waited_for()) for broker in brokers] == [1, 2])
    answer = await rest.ok("POST", f"{rest.project}:reset")
    counts = {"topics": 2, "subscriptions": 4, "snapshots": 1, "schemas": 1, "operations": 1, "schedules": 1}
    assert answer == {"deleted": counts}
    assert [(await pull).status_code for pull in pulls] == [404, 404]
    assert (await stream.ended()).code == "NOT_FOUND"
    after = _rows(database_url)
    guest = {"subscriptions": 1, "cursors": 1}
    own_policy = {"policies": 1}
    assert after == {name: before[name] + (guest | own_policy).get(name, 0) for name in before}
    for each in two:
        refused = await each.error("POST", f"{rest.topic('letters')}:publish", {"messages": [{"data": "eA=="}]})
        assert refused[0] == "NOT_FOUND"
        for kind in ("topics", "subscriptions", "snapshots", "schemas", "operations", "schedules"):
            assert not (await each.ok("GET", f"{rest.project}/{kind}")).get(kind), kind
    assert (await rest.ok("GET", f"{rest.project}/settings"))["eventTopic"] == rest.topic("letters")
    assert [text(each) for each in await neighbour.drain("guest")] == ["kept for the guest"]
    assert await rest.ok("POST", f"{rest.project}:reset") == {"deleted": dict.fromkeys(counts, 0)}
    await rest.create_topic("letters")
    await rest.create_subscription("waiting", topic="letters")
    await other.publish("new", topic="letters")
    assert [text(each) for each in await other.drain("waiting")] == ["new"]
    await streams.close()


@pytest.mark.slow
@pytest.mark.ci
async def test_what_is_made_and_published_while_a_project_is_reset_is_there_or_gone(
    two: tuple[Rest, Rest], database_url: str
) -> None:
    """No process knows of anything afterwards that the database has not, and nothing is half there."""

    async def use(each: Rest, number: int) -> None:
        topic, name = f"topic-{number % 3}", f"sub-{number}"
        await each.call("PUT", each.topic(topic), {})
        await each.call("PUT", each.subscription(name), {"topic": each.topic(topic)})
        codes = [
            (await each.call("POST", f"{each.topic(topic)}:publish", {"messages": [{"data": "eA=="}]})).status_code,
            (
                await each.call(
                    "POST", f"{each.subscription(name)}:pull", {"maxMessages": 1, "returnImmediately": True}
                )
            ).status_code,
            (await each.call("PUT", f"{each.project}/snapshots/snap-{number}", {"subscription": name})).status_code,
            (await each.call("DELETE", each.topic(topic))).status_code,
        ]
        assert set(codes) <= {200, 400, 404, 409}, codes

    for turn in range(6):
        using = [asyncio.create_task(use(each, 10 * turn + number)) for number in range(4) for each in two]
        await asyncio.gather(*(each.call("POST", f"{each.project}:reset") for each in two))
        await asyncio.gather(*using)
    await two[0].ok("POST", f"{two[0].project}:reset")
    assert set(_rows(database_url).values()) == {0}


async def test_what_is_being_made_when_a_project_is_reset_is_waited_for(
    two: tuple[Rest, Rest], brokers: list[Broker], database_url: str
) -> None:
    """Else the topic would go, and a subscription that it was just given stay."""
    rest, _ = two
    await rest.create_topic()
    await rest.create_subscription()
    async with brokers[0].core.database.transaction() as connection:
        topic_id = await topics.share_topic(connection, name=rest.topic())
        known = await subscriptions.find_subscription(connection, name=rest.subscription())
        assert topic_id is not None
        assert known is not None
        await subscriptions.insert_subscription(
            connection,
            subscription=replace(known, name=rest.subscription("made")),
            topic_id=topic_id,
            now=brokers[0].core.clock.now(),
        )
        reset = asyncio.create_task(rest.ok("POST", f"{rest.project}:reset"))
        await until_waiting(brokers[1].core.database)
    assert (await reset)["deleted"]["subscriptions"] == 2
    assert set(_rows(database_url).values()) == {0}


async def test_it_is_refused_where_the_operator_does_not_let_it(rest: Rest) -> None:
    await rest.create_topic()
    code, why = await rest.error("POST", f"{rest.project}:reset")
    assert (code, "--allow-reset (BROKER_ALLOW_RESET=true)" in why) == ("FAILED_PRECONDITION", True)
    assert (await rest.ok("GET", rest.topic()))["name"] == rest.topic()
