"""kill -9 of brokers and of PostgreSQL's sessions while a filter is changed again and again, and others publish:
each message is decided by the filter that was answered before it was published (A3).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import drain_patiently, kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, message

StartBroker = Callable[..., BrokerProcess]

TURNS = 12
SEED = 20261126
OPTIONS = ("--port", "0", "--workers", "2", "--shards-per-topic", "3")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(300)]


class Story:
    """What was answered so far.  A message of a turn is wanted by the filter of that turn alone."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.begun = self.answered = 0
        self.wanted, self.unwanted = set[str](), set[str]()
        self.over = False

    async def change(self, turn: int) -> None:
        self.begun = turn
        body = {"filter": f'attributes.turn = "{turn}"'}
        await patiently(lambda: self.rest.ok("POST", f"{self.rest.subscription()}:setFilter", body))
        self.answered = turn

    async def publish(self, publisher: int) -> None:
        count = 0
        while not self.over:
            turn, count = self.answered, count + 1
            name = f"{publisher} {count}"
            late = message(f"late {name}", {"turn": str(turn - 1)})
            with suppress(httpx.HTTPError, AssertionError):  # it may be there all the same
                await self.rest.publish(message(name, {"turn": str(turn)}), late)
                if self.begun == turn:  # no other filter can have decided about it
                    self.wanted.add(name)
            self.unwanted.add(f"late {name}")

    async def pull(self, came: list[str]) -> None:
        while not self.over:
            came += await drain_patiently(self.rest)


async def test_no_message_is_decided_by_a_filter_that_was_replaced_whatever_is_killed(
    start_broker: StartBroker, data_dir: Path
) -> None:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    dice, killed = random.Random(SEED), Counter[str]()
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest, came = Rest(client, "projects/p"), list[str]()
        await rest.create_topic()
        await rest.create_subscription(filter='attributes.turn = "0"', retainAckedMessages=True)
        story = Story(rest)
        others = [asyncio.create_task(story.publish(publisher)) for publisher in range(3)]
        others.append(asyncio.create_task(story.pull(came)))
        for turn in range(1, TURNS):
            await asyncio.sleep(dice.uniform(0.05, 0.3))
            changing = asyncio.create_task(story.change(turn))
            kill_one(broker, dice, killed)
            await changing
        story.over = True
        await asyncio.gather(*others)
        came += await drain_patiently(rest)
        assert min(killed["session"], killed["worker"]) >= 2, killed
        assert story.wanted
        assert story.wanted <= {*came}
        assert story.unwanted.isdisjoint(came)
        await rest.ok("POST", f"{rest.subscription()}:seek", {"time": "2020-01-01T00:00:00Z"})
        assert {*await drain_patiently(rest)} == {*came}, "a seek brings back what was delivered, and nothing else"
