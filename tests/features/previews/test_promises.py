"""A preview counts what the action then does, or the action is refused, while others publish and acknowledge."""

import asyncio
from random import Random
from typing import Any

import pytest

from broker.db.driver.database import Database
from broker.db.schema.tables import metadata
from tests.features.previews.test_previews import destroy, preview_of
from tests.fixtures.broker import Rest, message
from tests.interleavings.steps import execute, open_transaction, until_waiting

SOME, MANY = range(4), range(4, 40)  # random histories
LATER = "2100-01-01T00:00:00Z"
KEPT_BY_OTHERS = {
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
}  # or written by jobs


class History:
    """A topic and a subscription, and what became of each message; acks say whether they took effect."""

    def __init__(self, rest: Rest, dice: Random, name: str) -> None:
        self.rest, self.dice, self.name = rest, dice, name
        self.published: set[str] = set()
        self.acked: set[str] = set()
        self.held: dict[str, str] = {}  # message ids by ack id

    async def begin(self) -> None:
        ordered, filtered = self.dice.random() < 0.3, self.dice.random() < 0.3
        await self.rest.create_topic(self.name)
        fields = {"enableMessageOrdering": ordered, "enableExactlyOnceDelivery": True, "ackDeadlineSeconds": 600}
        fields |= {"filter": "attributes:taken"} if filtered else {}
        await self.rest.create_subscription(self.name, self.name, **fields)
        for _ in range(self.dice.randrange(4)):
            await self.publish(self.dice.randint(1, 4))
        await self.pull(self.dice.randrange(6))
        for ack_id in self.dice.sample(sorted(self.held), k=self.dice.randint(0, len(self.held))):
            await self.ack(ack_id)

    async def publish(self, count: int) -> None:
        """Messages of one key; each matches the filter of the subscription, or none of them is waited for."""
        key = self.dice.choice(["", "a", "b"])
        several = [message("text", attributes={"taken": "yes"}) for _ in range(count)]
        several = [each | ({"orderingKey": key} if key else {}) for each in several]
        self.published |= {*await self.rest.publish(*several, topic=self.name)}

    async def pull(self, count: int) -> None:
        if count:
            received = await self.rest.pull(self.name, count)
            self.held |= {each["ackId"]: each["message"]["messageId"] for each in received}

    async def ack(self, ack_id: str) -> None:
        path = f"{self.rest.subscription(self.name)}:acknowledge"
        answer = await self.rest.call("POST", path, {"ackIds": [ack_id]})
        if answer.status_code == 200:
            self.acked.add(self.held.pop(ack_id))

    async def meanwhile(self, *, publishes: bool) -> None:
        """What others do at the time of the action."""
        acks = [self.ack(ack_id) for ack_id in self.dice.sample(sorted(self.held), k=min(len(self.held), 2))]
        published = [self.publish(1) for _ in range(self.dice.randrange(3) if publishes else 0)]
        await asyncio.gather(*published, *acks)

    async def lost(self, *, is_gone: bool) -> set[str]:
        """What is neither acked nor delivered to whoever takes all that is left, if the subscription is there."""
        if is_gone:
            return self.published - self.acked
        for ack_id in self.held:
            body = {"ackIds": [ack_id], "ackDeadlineSeconds": 0}
            await self.rest.call("POST", f"{self.rest.subscription(self.name)}:modifyAckDeadline", body)
        drained = {each["message"]["messageId"] for each in await self.rest.drain(self.name)}
        return self.published - self.acked - drained


ENDS = ["delete", "detach"]  # of the subscription
ACTIONS = ["purge", "seek", "discard", "retract", "purge topic", *ENDS]


def action(history: History, kind: str) -> tuple[str, dict[str, Any]]:
    subscription, topic = history.rest.subscription(history.name), history.rest.topic(history.name)
    ids = sorted(history.published)
    return {
        "purge": (f"POST {subscription}:purge", {}),
        "seek": (f"POST {subscription}:seek", {"time": LATER}),
        "discard": (f"POST {subscription}:discard", {"messageIds": ids}),
        "retract": (f"POST {topic}:retract", {"messageIds": ids}),
        "purge topic": (f"POST {topic}:purge", {}),
        "delete": (f"DELETE {subscription}", {}),
        "detach": (f"POST {subscription}:detach", {}),
    }[kind]


@pytest.mark.own_broker(allow_reset=True)
@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("numbers", [SOME, pytest.param(MANY, marks=pytest.mark.slow)], ids=["some", "many"])
async def test_what_is_lost_is_what_was_expected_or_nothing(rest: Rest, kind: str, numbers: range) -> None:
    answers = []
    for number in numbers:
        dice = Random(f"{kind} {number}")
        history = History(rest, dice, f"{kind.replace(' ', '-')}-{number}")
        await history.begin()
        if kind in ("discard", "retract") and not history.published:
            await history.publish(2)
        call, body = action(history, kind)
        expected = (await preview_of(rest, call, **body))["count"]
        if kind in ("purge topic", "retract"):
            assert expected == len(history.published)
        else:
            assert expected == len(history.published - history.acked)
        is_alone, tolerance = number % 3 == 0, dice.choice([0, 50])
        limits = {"expectedCount": expected, "tolerancePercent": tolerance}
        disturbance = asyncio.sleep(0) if is_alone else history.meanwhile(publishes=kind not in ENDS)
        answer, _ = await asyncio.gather(destroy(rest, call, **body, **limits), disturbance)
        answers.append(answer.status_code)
        before, acked = {*history.published}, {*history.acked}
        lost = await history.lost(is_gone=kind in ENDS and answer.status_code == 200)
        if answer.status_code == 409:
            assert answer.json()["error"]["status"] == "ABORTED"
            assert not lost, "and nothing was changed"
            continue
        assert answer.status_code == 200, answer.text
        if kind in ("purge topic", "retract"):  # with what was acknowledged, and is retained
            lost |= acked & before
        assert abs(len(lost) - expected) * 100 <= tolerance * expected, (len(lost), expected)
        if is_alone:
            assert len(lost) == expected
    assert 200 in answers


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
        await execute(
            session, "SELECT FROM push_states FOR UPDATE"
        )  # which a deletion removes after it has counted
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
