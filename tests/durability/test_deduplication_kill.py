"""kill -9 of brokers and of PostgreSQL's sessions while publishers send each request until it is answered, and once
more: each message is stored once, and has one id (J5).
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message, text

StartBroker = Callable[..., BrokerProcess]

PUBLISHERS, REQUESTS, OF_A_REQUEST = 4, 15, 5
SEED = 20261125

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def _until_answered(rest: Rest, messages: list[Json]) -> tuple[list[str], int]:
    """And how often it was sent in vain: of some of these nobody knows what became."""
    for failures in range(1_000):
        try:
            return await rest.publish(*messages), failures
        except (httpx.HTTPError, AssertionError):
            await asyncio.sleep(0.02)
    raise AssertionError("never answered")


@dataclass
class _Trouble:
    """What was killed, and how many tries were in vain: publishers go on until there was enough of both."""

    killed: Counter[str] = field(default_factory=Counter)
    in_vain: int = 0

    @property
    def is_enough(self) -> bool:
        return min(self.killed["session"], self.killed["worker"], self.in_vain) >= 3


async def _publish(rest: Rest, number: int, trouble: _Trouble) -> dict[str, str]:
    """Ids by texts; two publishers each send the same."""
    ids: dict[str, str] = {}
    for request in itertools.count():
        if request >= REQUESTS and trouble.is_enough:
            break
        names = [f"{number // 2}-{request}-{n}" for n in range(OF_A_REQUEST)]
        messages = [message(name, {"broker-dedup-id": name}) for name in names]
        first, failures = await _until_answered(rest, messages)
        trouble.in_vain += failures
        again, _ = await _until_answered(rest, messages[::-1])
        assert again[::-1] == first
        ids |= dict(zip(names, first, strict=True))
    return ids


async def test_each_message_is_stored_once_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    options = ("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    broker = await asyncio.to_thread(start_broker, *options)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic(extensions={"deduplication": {"window": "3600s"}})
        await rest.create_subscription()
        trouble = _Trouble()
        publishing = asyncio.gather(*(_publish(rest, number, trouble) for number in range(PUBLISHERS)))
        while not publishing.done():
            await patiently(lambda: rest.ok("GET", rest.topic()))  # or there is nobody to be killed
            await asyncio.sleep(dice.uniform(0.05, 0.4))
            kill_one(broker, dice, trouble.killed)
        published = await publishing
        came: list[Json] = []
        while received := await patiently(lambda: rest.pull(max_messages=1000)):
            came += [each["message"] for each in received]
            await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
    ids: dict[str, str] = {}
    for answered in published:
        for name, id_ in answered.items():
            assert ids.setdefault(name, id_) == id_, "two publishers were told two ids"
    assert Counter(each["messageId"] for each in came).keys() == set(ids.values())
    stored = {each["messageId"]: text({"message": each}) for each in came}
    assert sorted(stored.values()) == sorted(ids), "each once"
    assert {name: id_ for id_, name in stored.items()} == ids
