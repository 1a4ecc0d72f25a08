"""kill -9 of brokers and of PostgreSQL's sessions while schedules tick: one message a tick (J2)."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message, text

StartBroker = Callable[..., BrokerProcess]

SCHEDULES = 20
SECONDS = 12.0
SEED = 20261124

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def test_each_tick_is_one_message_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    options = ("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    broker = await asyncio.to_thread(start_broker, *options)
    dice = random.Random(SEED)
    killed: Counter[str] = Counter()
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        await rest.create_subscription()
        names = [f"projects/p/schedules/each-{number}" for number in range(SCHEDULES)]
        for name in names:
            body = {"topic": "projects/p/topics/topic", "interval": "1s", "missed": "ALL"}
            await rest.ok("PUT", name, body | {"template": message("{{schedule}} {{time}}")})
        end = asyncio.get_running_loop().time() + SECONDS
        while asyncio.get_running_loop().time() < end or min(killed["session"], killed["worker"]) < 2:
            await patiently(lambda: rest.ok("GET", rest.topic()))  # or there is nobody to be killed
            await asyncio.sleep(dice.uniform(0.1, 0.7))
            kill_one(broker, dice, killed)
        for name in names:
            await patiently(lambda name=name: rest.ok("POST", f"{name}:pause", {}))  # type: ignore[misc]
        came: list[Json] = []
        while received := await patiently(lambda: rest.pull(max_messages=1000)):
            came += received
            await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
    texts = Counter(map(text, came))
    assert max(texts.values()) == 1, "twice"
    for name in names:
        times = sorted(
            datetime.fromisoformat(each.split()[1]) for each in texts if each.split()[0] == name.rpartition("/")[2]
        )
        assert len(times) > SECONDS / 2
        steps = {later - earlier for earlier, later in pairwise(times)}
        assert steps == {timedelta(seconds=1)}, "left out"
