"""What a seek would bring about is what it brings about; an extension (G2)."""

import base64
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fixtures.broker import Json, Rest, message

FILTER = 'attributes.kind = "wanted"'
LATER = "2100-01-01T00:00:00Z"


@dataclass
class Story:
    """Random publishes, pulls and acks of one subscription, and what was published."""

    rest: Rest
    chance: random.Random
    ordered: bool
    filtered: bool
    published: dict[str, Json] = field(default_factory=dict)  # by id, as the topic shows them
    snapshots: list[str] = field(default_factory=list)

    async def go_on(self) -> None:
        for _ in range(self.chance.randrange(1, 5)):
            step = self.chance.choice([self.publish, self.consume, self.consume, self.keep])
            await step()

    async def publish(self) -> None:
        messages = []
        for _ in range(self.chance.randrange(1, 6)):
            kind = self.chance.choice(["wanted", "other"])
            key = {"orderingKey": self.chance.choice("abc")} if self.ordered else {}
            messages.append(message("x" * self.chance.randrange(1, 50), {"kind": kind}, **key))
        if self.ordered:
            for each in messages:
                await self.rest.publish(each)
        else:
            await self.rest.publish(*messages)

    async def consume(self) -> None:
        received = await self.rest.pull(max_messages=self.chance.randrange(1, 8))
        acked = [each for each in received if self.chance.random() < 0.6]
        if acked:
            await self.rest.acknowledge(acked)

    async def keep(self) -> None:
        name = f"{self.rest.project}/snapshots/snap{len(self.snapshots)}"
        await self.rest.ok("PUT", name, {"subscription": self.rest.subscription()})
        self.snapshots.append(name)

    async def subscription_gauges(self) -> dict[str, int]:
        """What is not acked, with its size, by its id."""
        answer = await self.rest.ok("GET", f"{self.rest.subscription()}/messages", params={"pageSize": 1000})
        shown = [each["message"] for each in answer.get("messages", [])]
        return {m["messageId"]: size_of(m) for m in shown if self.is_wanted(m)}

    def is_wanted(self, shown: Json) -> bool:
        """What waits behind a key is shown though the filter leaves it out, and is passed when it is its turn."""
        return not self.filtered or shown["attributes"]["kind"] == "wanted"

    async def position(self) -> int:
        [shard] = (await self.rest.ok("GET", f"{self.rest.subscription()}/snapshot"))["shards"]
        return int(shard["nextSequence"])

    async def target(self) -> Json:
        if self.snapshots and self.chance.random() < 0.4:
            return {"snapshot": self.chance.choice(self.snapshots)}
        answer = await self.rest.ok("GET", f"{self.rest.topic()}/messages", params={"pageSize": 1000})
        self.published = {m["messageId"]: m for m in answer.get("messages", [])}
        times = [m["publishTime"] for m in self.published.values()]
        return {"time": self.chance.choice([*times, LATER, "2000-01-01T00:00:00Z"])}

    def asked_for(self, target: Json, position: int) -> int:
        """How many messages of before the cursor a seek to a time asks for."""
        return sum(
            m["publishTime"] >= target["time"] and sequence(id_) < position and self.is_wanted(m)
            for id_, m in self.published.items()
        )


def size_of(shown: Json) -> int:
    """As the log counts it: attributes as text, with a blank behind each colon and comma."""
    attributes = shown.get("attributes", {})
    text = ", ".join(f'"{name}": "{value}"' for name, value in attributes.items())
    return len(base64.b64decode(shown.get("data", ""))) + (len(text) + 2 if attributes else 0)


def sequence(id_: str) -> int:
    return int(id_) % 10**15


async def check(story: Story) -> None:
    target = await story.target()
    before, position = await story.subscription_gauges(), await story.position()
    reported = await story.rest.ok("POST", f"{story.rest.subscription()}:previewSeek", target)
    assert await story.subscription_gauges() == before, "the preview has changed something"
    sought = await story.rest.ok("POST", f"{story.rest.subscription()}:seek", target)
    after = await story.subscription_gauges()
    again = {id_: size for id_, size in after.items() if sequence(id_) < position}
    skipped = {id_: size for id_, size in before.items() if id_ not in after}
    expected: dict[str, Any] = {
        "replayedMessages": len(again),
        "replayedBytes": sum(again.values()),
        "skippedMessages": len(skipped),
        "skippedBytes": sum(skipped.values()),
        "notRetainedMessages": 0 if "snapshot" in target else story.asked_for(target, position) - len(again),
    }
    assert reported == expected, target
    if not (story.ordered and story.filtered):  # then what waits behind a key is counted as it is shown
        assert sought["replayedMessages"] == len(again)


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@pytest.mark.parametrize("filtered", [False, True], ids=["all", "filtered"])
@pytest.mark.parametrize("retained", [False, True], ids=["acked are gone", "acked are retained"])
async def test_a_seek_brings_about_what_its_preview_has_told(
    rest: Rest, *, ordered: bool, filtered: bool, retained: bool
) -> None:
    await rest.create_topic(messageRetentionDuration="3600s") if retained else await rest.create_topic()
    fields: Json = {"filter": FILTER} if filtered else {}
    await rest.create_subscription(enableMessageOrdering=ordered, ackDeadlineSeconds=600, **fields)
    story = Story(rest, random.Random(f"{ordered}{filtered}{retained}"), ordered, filtered)
    await story.publish()
    for _ in range(12):
        await story.go_on()
        await check(story)


async def test_past_the_bound_it_is_an_estimate_and_says_so(rest: Rest) -> None:
    await rest.create_topic(messageRetentionDuration="3600s")
    await rest.create_subscription()
    for _ in range(11):
        await rest.publish(*["x" * 10] * 1000)
    reported = await rest.ok("POST", f"{rest.subscription()}:previewSeek", {"time": LATER})
    assert reported == {
        "replayedMessages": 0,
        "replayedBytes": 0,
        "skippedMessages": 11_000,
        "skippedBytes": 110_000,
        "notRetainedMessages": 0,
        "estimated": True,
    }
    await rest.ok("POST", f"{rest.subscription()}:purge")
    reported = await rest.ok("POST", f"{rest.subscription()}:previewSeek", {"time": "2000-01-01T00:00:00Z"})
    assert (reported["replayedMessages"], reported["replayedBytes"], reported["estimated"]) == (
        11_000,
        110_000,
        True,
    )
    assert (await rest.error("POST", f"{rest.subscription()}:previewSeek", {}))[0] == "INVALID_ARGUMENT"
