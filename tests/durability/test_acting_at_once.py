"""Whatever operators do at once, nobody waits for somebody who waits for them: no deadlock, and no error (G2)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.db.driver.database import Database
from tests.fixtures.broker import Json, Rest, message
from tests.fixtures.in_process import running_in_process

SECONDS = 8
SEED = 20261124
ANSWERS = {200, 400, 404, 409, 429}  # refused is not lost: a 5xx would be


class Acting:
    """Two subscriptions, each of which has the dead letters of the other."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.dice = Random(SEED)
        self.done: dict[str, int] = {}
        self.bad: list[str] = []

    async def begin(self) -> None:
        for topic in ("one", "two"):
            await self.rest.create_topic(topic)
        for topic, other in (("one", "two"), ("two", "one")):
            policy = {"deadLetterTopic": self.rest.topic(other), "maxDeliveryAttempts": 1}
            await self.rest.create_subscription(
                topic, topic, deadLetterPolicy=policy, enableMessageOrdering=True, retainAckedMessages=True
            )

    async def call(self, name: str, verb: str, body: Json | None = None) -> Json:
        answer = await self.rest.call("POST", f"{self.rest.subscription(name)}:{verb}", body or {})
        if answer.status_code == 200:
            self.done[verb] = self.done.get(verb, 0) + 1
        elif answer.status_code not in ANSWERS:
            self.bad.append(f"{verb}: {answer.text}")
        return dict(answer.json()) if answer.status_code == 200 else {}

    async def traffic(self, name: str) -> None:
        await self.rest.publish(
            *(message(f"m{n}", orderingKey=self.dice.choice("ab")) for n in range(1)), topic=name
        )
        await self.rest.publish(*(f"m{n}" for n in range(10)), topic=name)
        received = (await self.call(name, "pull", {"maxMessages": 20})).get("receivedMessages", [])
        ack_ids = [each["ackId"] for each in received]
        if ack_ids:
            await self.call(name, "modifyAckDeadline", {"ackIds": ack_ids, "ackDeadlineSeconds": 0})

    async def edit(self, name: str) -> None:
        found = await self.rest.ok("GET", f"{self.rest.subscription(name)}/deadLetters", params={"pageSize": 5})
        for dead_letter in found.get("deadLetters", []):
            body = {"messageId": dead_letter["sourceMessageId"], "setAttributes": {"mended": "yes"}}
            await self.call(name, "editDeadLetter", body)

    async def resend(self, name: str) -> None:
        found = await self.rest.ok("GET", f"{self.rest.topic(name)}/messages", params={"pageSize": 50})
        ids = [each["messageId"] for each in found.get("messages", [])]
        if ids:
            await self.call(name, "resend", {"messageIds": self.dice.sample(ids, min(20, len(ids)))})

    async def ack(self, name: str) -> None:
        received = (await self.call(name, "pull", {"maxMessages": 20})).get("receivedMessages", [])
        if received:
            await self.call(name, "acknowledge", {"ackIds": [each["ackId"] for each in received]})

    async def pause(self, name: str) -> None:
        await self.call(name, "pause")
        await self.call(name, "resume")

    def acts(self) -> Sequence[Callable[[str], Awaitable[object]]]:
        a_while_ago = {"time": "2020-01-01T00:00:00Z"}
        return [
            self.traffic,
            self.ack,
            self.edit,
            self.pause,
            lambda name: self.call(name, "redrive"),
            self.resend,
            lambda name: self.call(name, "discard", {"filter": "NOT attributes:n"}),
            lambda name: self.call(name, "seek", a_while_ago),
            lambda name: self.call(name, "previewSeek", a_while_ago),
            lambda name: self.call(name, "purge", {"before": a_while_ago["time"]}),
        ]


async def _again(act: Callable[[str], Awaitable[object]], name: str) -> None:
    clock = asyncio.get_running_loop().time
    end = clock() + SECONDS
    while clock() < end:
        await act(name)


@pytest.mark.slow
@pytest.mark.ci
async def test_nobody_waits_in_a_circle(database_url: str, database: Database) -> None:
    settings = AppConfig(database_url=database_url, min_delivery_attempts=1, dead_letter_interval_seconds=0.02)
    async with running_in_process(Broker(settings)) as client, running_in_process(Broker(settings)):
        acting = Acting(Rest(client, "projects/p"))
        await acting.begin()
        async with asyncio.TaskGroup() as group:
            for act in acting.acts():
                for name in ("one", "two"):
                    group.create_task(_again(act, name))
    assert acting.bad == []
    wanted = {"redrive", "resend", "acknowledge", "discard", "seek", "previewSeek", "purge", "pause", "resume"}
    assert wanted <= acting.done.keys(), acting.done
    async with database.connection() as connection:  # the broker's sessions have told what they met as they ended
        query = b"SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        assert await (await connection.execute(query)).fetchone() == (0,), acting.done
