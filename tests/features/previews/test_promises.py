"""A preview counts what the action then does, or the action is refused, while others publish and acknowledge."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from broker.db.driver.database import Database
from broker.db.schema.tables import metadata
from tests.features.previews.previewed_calls import CALLS, LATER, calls_with_previews, destroy
from tests.features.previews.test_previews import preview_of
from tests.fixtures.access import guarded
from tests.fixtures.broker import Rest
from tests.fixtures.push_sink import PushSink
from tests.interleavings.steps import execute, open_transaction, until_waiting

SOME, MANY = range(3), range(3, 40)  # random histories
KEPT_BY_OTHERS = {  # or written by jobs
    "processes",
    "readers",
    "table_sizes",
    "delivery_records",
    "alembic_version",
    "lag_samples",
    "lag_orders",
    "lag_passes",
    "history_series",
    "history_points",
}


def test_each_call_that_has_a_preview_is_known_here() -> None:
    assert CALLS.keys() == calls_with_previews()


@pytest.fixture
async def admin(database_url: str) -> AsyncIterator[Rest]:
    """An administrator of a broker where all calls may be made."""
    async with guarded(
        database_url,
        allow_reset=True,
        console="on",
        dead_letter_interval_seconds=0.05,
        min_delivery_attempts=1,
        push_private_addresses="allow",
    ) as broker:
        broker.client.headers.update(broker.bearer())
        yield Rest(broker.client, broker.project)


@pytest.mark.parametrize("numbers", [SOME, pytest.param(MANY, marks=pytest.mark.slow)], ids=["some", "many"])
@pytest.mark.parametrize("operation", sorted(calls_with_previews()))
async def test_a_call_does_what_its_preview_said_or_is_refused_and_does_nothing(
    admin: Rest, push_sink: PushSink, operation: str, numbers: range
) -> None:
    """In every third history no other client calls, so the call must not be refused."""
    answered = []
    for number in numbers:
        dice = Random(f"{operation} {number}")
        call = CALLS[operation](admin, push_sink, dice, f"call-{number}")
        await call.begin()
        await asyncio.sleep(0.002)  # times are whole milliseconds
        path, body = call.call()
        preview = await destroy(admin, path, **body, validateOnly=True)
        assert preview.status_code == 200, preview.text
        expected = call.count_of(preview.json())
        limits = {
            "expectedCount": expected,
            "tolerancePercent": dice.choice([0, 50]),
            "asOf": as_of(preview.json()),
        }
        limits = {name: value for name, value in limits.items() if name in call.limits}
        if "expectedCount" in limits and dice.random() < 0.7:
            del limits["asOf"]
        await asyncio.sleep(0.002)
        is_alone = number % 3 == 0
        others = [] if is_alone else call.meanwhile()
        answer, *_ = await asyncio.gather(destroy(admin, path, **body, **limits), *others)
        is_done = answer.status_code == 200
        answered.append(is_done)
        if not is_done:
            assert answer.status_code in (409, *call.refusals), answer.text
            assert answer.status_code != 409 or answer.json()["error"]["status"] == "ABORTED"
        affected = await call.affected(answer.json() if is_done else None)
        if not is_done:
            assert affected == 0, "and nothing was changed"
            assert not is_alone
        elif "expectedCount" not in limits:
            assert affected <= expected
        else:
            tolerance = 0 if is_alone else limits["tolerancePercent"]
            assert abs(affected - expected) * 100 <= tolerance * expected, (affected, expected)
    assert True in answered


def as_of(preview: dict[str, Any]) -> str:
    """The time of a preview, or of the plan of an operation."""
    return str(preview.get("asOf") or preview.get("metadata", {}).get("asOf", ""))


async def test_a_count_that_is_an_estimate_is_no_promise(admin: Rest, push_sink: PushSink) -> None:
    """Each call either takes all limits, or refuses those that it cannot keep."""
    for operation, kind in CALLS.items():
        if "asOf" not in kind.limits or "expectedCount" in kind.limits:
            continue
        call = kind(admin, push_sink, Random(operation), "call")
        await call.begin()
        path, body = call.call()
        expected = call.count_of((await destroy(admin, path, **body, validateOnly=True)).json())
        refused = await destroy(admin, path, **body, expectedCount=expected)
        assert refused.json()["error"]["status"] == "FAILED_PRECONDITION", operation


@pytest.mark.own_broker
async def test_nobody_publishes_between_the_count_and_the_end_of_a_subscription(
    rest: Rest, database: Database
) -> None:
    await rest.create_topic()
    await rest.create_subscription()
    await rest.create_subscription("bystander")
    await rest.publish("counted")
    await rest.ok("POST", f"{rest.subscription()}:pause", {})
    async with open_transaction(database) as session:
        await execute(session, "SELECT FROM push_states FOR UPDATE")  # a deletion removes them after its count
        deleting = asyncio.create_task(destroy(rest, f"DELETE {rest.subscription()}", expectedCount=1))
        await until_waiting(database)
        publishing = asyncio.create_task(rest.publish("late"))
        await until_waiting(database, 2)
        assert not publishing.done()
    assert (await deleting).status_code == 200
    await publishing
    assert len(await rest.drain("bystander")) == 2


# A preview and the table that it reads after it has counted the messages of the log.
PREVIEWED = [
    ("DELETE", "subscription", "dead_letters"),
    ("detach", "subscription", "dead_letters"),
    ("DELETE", "topic", "scheduled_messages"),
    ("purge", "topic", "scheduled_messages"),
]


@pytest.mark.own_broker
@pytest.mark.parametrize(("verb", "resource", "table"), PREVIEWED, ids=lambda each: each)
async def test_a_preview_keeps_nobody_from_publishing(
    rest: Rest, database: Database, verb: str, resource: str, table: str
) -> None:
    await rest.ok("PUT", rest.topic(), {"messageRetentionDuration": "600s"})
    await rest.create_subscription()
    await rest.publish("counted")
    name = rest.topic() if resource == "topic" else rest.subscription()
    call = f"DELETE {name}" if verb == "DELETE" else f"POST {name}:{verb}"
    async with open_transaction(database) as session:
        await execute(session, f"LOCK TABLE {table}")
        previewing = asyncio.create_task(preview_of(rest, call, expectedCount=1))
        await until_waiting(database)
        await rest.publish("meanwhile")
        assert not previewing.done()
    assert (await previewing)["count"] == 1


@pytest.mark.own_broker(allow_reset=True)
async def test_a_preview_leaves_each_table_as_it_was(rest: Rest, database: Database) -> None:
    await rest.ok("PUT", rest.topic(), {"messageRetentionDuration": "600s", "extensions": {"delay": True}})
    await rest.create_subscription(retainAckedMessages=True, extensions={"journal": {"mode": "ALL"}})
    ids = await rest.publish("acked", "out", "waits")
    late = {"data": "eA==", "attributes": {"broker-delay": "3600s"}}
    [scheduled] = await rest.publish(late)
    await rest.acknowledge(await rest.pull(max_messages=1))
    await rest.pull(max_messages=1)
    snapshot, schedule = f"{rest.project}/snapshots/snapshot", f"{rest.project}/schedules/beat"
    await rest.ok("PUT", snapshot, {"subscription": rest.subscription()})
    await rest.ok("PUT", schedule, {"topic": rest.topic(), "interval": "3600s", "message": {"data": "eA=="}})
    await rest.ok("POST", f"{rest.project}/schemas?schemaId=schema", {"type": "JSON", "definition": "{}"})
    subscription, topic = rest.subscription(), rest.topic()
    calls: dict[str, dict[str, Any]] = {
        f"DELETE {subscription}": {},
        f"DELETE {topic}": {},
        f"DELETE {snapshot}": {},
        f"DELETE {schedule}": {},
        f"DELETE {rest.project}/schemas/schema": {},
        f"DELETE {topic}/scheduled/{scheduled}": {},
        f"POST {subscription}:detach": {},
        f"POST {subscription}:purge": {"undoable": True},
        f"POST {subscription}:seek": {"time": LATER, "undoable": True},
        f"POST {topic}:purge": {},
        f"POST {topic}:retract": {"messageIds": [*ids, scheduled]},
        f"POST {subscription}:discard": {"messageIds": ids},
        f"POST {subscription}:redrive": {},
        f"POST {rest.project}:reset": {},
    }
    before = await _contents(database)
    for call, body in calls.items():
        answer = await destroy(rest, call, **body, validateOnly=True)
        assert answer.status_code == 200, (call, answer.text)
        refused = await destroy(rest, call, **body, expectedCount=1_000)
        assert refused.status_code == 409, (call, refused.text)
        assert await _contents(database) == before, call


async def _contents(database: Database) -> dict[str, list[str]]:
    """All rows of the tables that calls write."""
    found = {}
    async with database.hot() as connection:
        for table in metadata.tables.values():
            if table.name not in KEPT_BY_OTHERS and not table.name.startswith("lock_"):
                rows = await execute(connection, f"SELECT t::text FROM {table.name} AS t ORDER BY 1")
                found[table.name] = [row[0] for row in rows]
    return found
