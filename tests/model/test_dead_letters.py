"""Dead letters over random histories: summary, list, plan and run agree with each other, and with a model.

Each history goes on in one project with two dead-letter topics, and subscriptions of these that come and go.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pytest

from broker.app.broker import Broker
from broker.app.config import AppConfig
from broker.model.dead_letter import KEPT
from tests.fixtures.access import StoppedClock
from tests.fixtures.broker import Json, Rest, message
from tests.fixtures.in_process import running_in_process

TOPICS = ("dead", "other")
FIRST_ID = "broker-source-message-id"
STEPS = 25


@dataclass
class DeadLetter:
    """`readers`: how each subscription of its topic has it: held, out or acked."""

    topic: str
    reason: str
    at: datetime
    readers: dict[str, str]
    resolved: bool = False
    edited: bool = False

    def is_open(self, now: datetime) -> bool:
        if self.edited or self.at < now - KEPT:
            return False
        if {"held", "out"} & {*self.readers.values()}:
            return True
        return not self.resolved and "acked" not in self.readers.values()


@dataclass
class History:
    """The model, and the broker that is compared with it."""

    broker: Broker
    rest: Rest
    dice: Random
    dead_letters: dict[str, DeadLetter] = field(default_factory=dict)  # by the message's id
    attributes: dict[str, Json] = field(default_factory=dict)
    filters: dict[str, str] = field(default_factory=dict)  # of readers: the attribute that they want ("": any)
    topic: str = "dead"
    made: int = 0

    @property
    def now(self) -> datetime:
        return self.broker.core.clock.now()

    def open(self, reason: str = "") -> list[str]:
        return [
            id_
            for id_, dead_letter in self.dead_letters.items()
            if dead_letter.is_open(self.now) and reason in ("", dead_letter.reason)
        ]

    def out(self, ids: Iterable[str]) -> set[str]:
        return {id_ for id_ in ids if "out" in self.dead_letters[id_].readers.values()}

    def some(self, ids: list[str], most: int) -> list[str]:
        return self.dice.sample(ids, min(len(ids), self.dice.randint(1, most)))

    async def begin(self) -> None:
        await self.rest.create_topic(extensions={"shards": 2})
        for topic in TOPICS:
            await self.rest.create_topic(topic, extensions={"shards": 2})
        await self.rest.create_subscription(deadLetterPolicy=self._policy())

    def _policy(self) -> Json:
        return {"deadLetterTopic": self.rest.topic(self.topic), "maxDeliveryAttempts": 1}

    # --- what may happen ----------------------------------------------------------------------------------------

    async def publish(self) -> None:
        for _ in range(self.dice.randint(1, 6)):
            attributes = {"odd": "1"} if self.dice.random() < 0.5 else {}
            [id_] = await self.rest.publish(message("m", attributes))
            self.attributes[id_] = attributes
        await self.fail()

    async def fail(self) -> None:
        """Whatever the subscription has becomes a dead letter, or is acknowledged."""
        acks = self.dice.random() < 0.2
        reason = self.dice.choice(("nack", "reject"))
        while received := await self.rest.pull(max_messages=1000):
            if acks:
                await self.rest.acknowledge(received)
                continue
            if reason == "nack":
                await self.rest.modify_ack_deadline(received, 0)
            else:
                body = {"ackIds": [each["ackId"] for each in received]}
                await self.rest.ok("POST", f"{self.rest.subscription()}:reject", body)
            while await self.broker.workers["dead-letter forwarder"].run_once():
                pass
            for each in received:
                id_ = each["message"]["messageId"]
                attributes = each["message"].get("attributes", {})
                readers = [
                    name
                    for name, wanted in self.filters.items()
                    if name.startswith(self.topic) and (not wanted or wanted in attributes)
                ]
                self.dead_letters[id_] = DeadLetter(self.topic, reason, self.now, dict.fromkeys(readers, "held"))

    async def subscribe(self) -> None:
        self.made += 1
        name = f"{self.topic}-{self.made}"
        self.filters[name] = wanted = self.dice.choice(("", "", "odd"))
        options = {"filter": f"attributes:{wanted}"} if wanted else {}
        await self.rest.create_subscription(name, self.topic, ackDeadlineSeconds=600, **options)

    async def unsubscribe(self) -> None:
        if self.filters:
            name = self.dice.choice(sorted(self.filters))
            verb, path = self.dice.choice((("DELETE", ""), ("POST", ":detach")))
            await self.rest.ok(verb, f"{self.rest.subscription(name)}{path}")
            wanted = self.filters.pop(name)
            for dead_letter in self.dead_letters.values():
                dead_letter.resolved |= dead_letter.readers.pop(name, "") == "acked"
            assert wanted in ("", "odd")

    async def read(self) -> None:
        """A subscription of a dead-letter topic takes some, and acknowledges or keeps or gives them back."""
        if not self.filters:
            return
        name = self.dice.choice(sorted(self.filters))
        received = await self.rest.pull(name, self.dice.randint(1, 6))
        how = self.dice.choice(("acked", "acked", "out", "held"))
        if not received:
            return
        if how == "acked":
            await self.rest.acknowledge(received, name)
        elif how == "held":
            await self.rest.modify_ack_deadline(received, 0, name)
        for each in received:
            dead_letter = self.dead_letters[each["message"]["attributes"][FIRST_ID]]
            assert dead_letter.readers[name] == "held"
            dead_letter.readers[name] = how

    async def switch(self) -> None:
        self.topic = self.dice.choice(TOPICS)
        change = {"subscription": {"deadLetterPolicy": self._policy()}, "updateMask": "deadLetterPolicy"}
        await self.rest.ok("PATCH", self.rest.subscription(), change)
        self.broker.core.resources.drop(self.rest.subscription())

    async def redrive(self) -> None:
        reason = self.dice.choice(("", "nack"))
        chosen = self.open(reason)
        body = {"reasons": [reason]} if reason else {}
        named = self.some(chosen, 5) if chosen and self.dice.random() < 0.4 else None
        if named is not None:
            chosen, body = named, {"messageIds": named}
        counts, done = await self._redrive(body)
        stay = self.out(chosen)
        expected = {"redriven": len(chosen) - len(stay), "outstanding": len(stay)}
        assert counts == {name: str(count) for name, count in expected.items() if count}
        assert done == len(chosen)
        for id_ in {*chosen} - stay:
            del self.dead_letters[id_]

    async def _redrive(self, body: Json) -> tuple[Json, int]:
        started = await self.rest.ok("POST", f"{self.rest.subscription()}:redrive", body)
        ended = await self.rest.ok("POST", f"{started['name']}:wait", {"timeout": "30s"})
        assert ended["done"]
        return ended["metadata"]["counts"], int(ended["metadata"]["done"])

    async def discard(self) -> None:
        if self.dice.random() < 0.3:
            ids, body = self.open("reject"), {"reasons": ["reject"]}
        elif self.dead_letters:
            ids = self.some(sorted(self.dead_letters), 5)
            body = {"messageIds": ids}
        else:
            return
        was_open = {*self.open()}
        outcomes = {each["messageId"]: each["outcome"] for each in await self._discard(body)}
        gone = {id_ for id_, outcome in outcomes.items() if outcome == "unknown"}
        assert not gone & was_open
        expected = {id_: "discarded" if id_ in was_open else "alreadySettled" for id_ in ids if id_ not in gone}
        assert {id_: outcome for id_, outcome in outcomes.items() if id_ not in gone} == expected
        for id_ in {*ids} & was_open:
            self.dead_letters[id_].resolved = True
            self.dead_letters[id_].readers = dict.fromkeys(self.dead_letters[id_].readers, "acked")

    async def _discard(self, body: Json) -> list[Json]:
        """All pages."""
        results: list[Json] = []
        while True:
            answer = await self.rest.ok("POST", f"{self.rest.subscription()}:discard", body)
            results += answer["results"]
            if "nextPageToken" not in answer:
                return results
            body = body | {"pageToken": answer["nextPageToken"]}

    async def edit(self) -> None:
        if ids := self.open():
            id_ = self.dice.choice(ids)
            path = f"{self.rest.subscription()}:editDeadLetter"
            edited = await self.rest.ok("POST", path, {"messageId": id_, "setAttributes": {"e": "1"}})
            assert edited["replaces"] == [id_]
            self.dead_letters[id_].edited = True
            refused = await self.rest.error("POST", path, {"messageId": id_})
            assert (refused[0], edited["messageId"] in refused[1]) == ("FAILED_PRECONDITION", True)

    async def purge(self) -> None:
        topic = self.dice.choice(TOPICS)
        await self.rest.ok("POST", f"{self.rest.topic(topic)}:purge", {})
        self.dead_letters = {
            id_: dead_letter for id_, dead_letter in self.dead_letters.items() if dead_letter.topic != topic
        }

    async def wait(self) -> None:
        """Hours or days go by; the janitor tidies up."""
        await self.broker.jobs.janitor.run_once()
        StoppedClock.ahead += self.dice.choice((timedelta(hours=1), timedelta(days=2), timedelta(days=3)))
        await self.broker.jobs.janitor.run_once()
        for dead_letter in self.dead_letters.values():
            dead_letter.readers = {
                name: "held" if how == "out" else how for name, how in dead_letter.readers.items()
            }

    # --- what is compared ---------------------------------------------------------------------------------------

    async def compare(self) -> None:
        expected = {*self.open()}
        assert {*await self._listed()} == expected, self.dead_letters
        path = f"{self.rest.subscription()}/deadLetters"
        summary = await self.rest.ok("GET", path, params={"groupBy": "reason"})
        groups = {group["key"]: group["count"] for group in summary["groups"]}
        assert (summary["deadLetterCount"], sum(groups.values())) == (len(expected), len(expected))
        assert groups == {reason: len(ids) for reason in ("nack", "reject") if (ids := self.open(reason))}
        assert await self._planned() == (len(expected), len(self.out(expected)))
        assert (await self._planned(reasons=["nack"]))[0] == groups.get("nack", 0)

    async def _listed(self) -> list[str]:
        ids: list[str] = []
        token = ""
        while not ids or token:
            params = {"pageSize": 3, **({"pageToken": token} if token else {})}
            page = await self.rest.ok("GET", f"{self.rest.subscription()}/deadLetters", params=params)
            ids += [each["sourceMessageId"] for each in page["deadLetters"]]
            token = page.get("nextPageToken", "")
            if not token:
                break
        assert len({*ids}) == len(ids)
        return ids

    async def _planned(self, **body: object) -> tuple[int, int]:
        plan = await self.rest.ok("POST", f"{self.rest.subscription()}:redrive", {**body, "validateOnly": True})
        metadata = plan["metadata"]
        assert "totalIsEstimate" not in metadata
        return int(metadata["total"]), int(metadata["counts"].get("outstanding", "0"))


@asynccontextmanager
async def _history(database_url: str, monkeypatch: pytest.MonkeyPatch, seed: int) -> AsyncIterator[History]:
    monkeypatch.setattr(StoppedClock, "ahead", timedelta(0))
    config = AppConfig(
        database_url=database_url,
        min_delivery_attempts=1,
        janitor_interval_seconds=1_000_000,
        dead_letter_interval_seconds=1_000_000,
    )
    broker = Broker(config, make_clock=StoppedClock)
    async with running_in_process(broker) as client:
        history = History(broker, Rest(client, "projects/p"), Random(seed))
        await history.begin()
        yield history


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_summary_list_plan_and_run_agree_after_each_step(
    database_url: str, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    async with _history(database_url, monkeypatch, seed) as history:
        steps = {
            history.publish: 6,
            history.fail: 2,
            history.subscribe: 2,
            history.unsubscribe: 2,
            history.read: 5,
            history.switch: 1,
            history.redrive: 3,
            history.discard: 3,
            history.edit: 2,
            history.purge: 1,
            history.wait: 2,
        }
        await history.publish()
        done = []
        for _ in range(STEPS):
            [step] = history.dice.choices(list(steps), list(steps.values()))
            done.append(step.__name__)
            try:
                await step()
                await history.compare()
            except AssertionError as error:
                raise AssertionError(f"after {' '.join(done)}: {error}") from error


async def test_what_many_do_at_once_to_the_same_dead_letters_is_counted_once(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody subscribes: nothing but the records of the dead letters can keep them apart."""
    async with _history(database_url, monkeypatch, 0) as history:
        for _ in range(4):
            await history.publish()
        rest, ids = history.rest, history.open()
        some = {"messageIds": ids[: len(ids) // 2]}
        path = f"{rest.subscription()}:editDeadLetter"
        edits = [rest.call("POST", path, {"messageId": id_}) for id_ in ids[::3]]
        redrives = [history._redrive(some if number else {}) for number in range(2)]
        discards = [rest.ok("POST", f"{rest.subscription()}:discard", some) for _ in range(2)]
        _, _, first, second, *answers = await asyncio.gather(*redrives, *discards, *edits)
        edited = {id_ for answer in answers if answer.status_code == 200 for id_ in answer.json()["replaces"]}
        outcomes = [(each["messageId"], each["outcome"]) for each in (*first["results"], *second["results"])]
        discarded = {id_ for id_, outcome in outcomes if outcome == "discarded"}
        came = [each["message"]["messageId"] for each in await rest.drain()]
        back, listed = {*ids} & {*came}, {*await history._listed()}
        assert await history._planned() == (len(listed), 0)
        assert len(came) == len({*came}) == len(back) + len(edited)
        assert len(back | edited | listed) == len(back) + len(edited) + len(listed)
        assert {*ids} - back - edited - listed <= discarded, "a redrive by ids brings back what was discarded"
