"""kill -9 of brokers and of PostgreSQL's sessions, again and again during a copy: each message is copied once, and
those of a key in its order (G2).

What a runner that writes down its progress apart from its work does then is in tests/workers/test_copying.py.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import kill_one, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, message, text

StartBroker = Callable[..., BrokerProcess]

KEYS, OF_A_KEY = [f"k{number}" for number in range(40)], 30
MESSAGES = len(KEYS) * OF_A_KEY
SEED = 20261124
OPTIONS = ("--port", "0", "--workers", "2", "--shards-per-topic", "3")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def test_a_copy_is_exact_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic(messageRetentionDuration="600s")
        await rest.create_topic("other")
        await rest.create_subscription(topic="other")
        for key in KEYS:
            await rest.publish(*(message(f"{key} {number}", orderingKey=key) for number in range(OF_A_KEY)))
        body = {"targetTopic": rest.topic("other"), "maxMessagesPerSecond": 400}
        name = (await rest.ok("POST", f"{rest.topic()}:copy", body))["name"]
        killed: Counter[str] = Counter()

        async def look() -> Json:
            return await rest.ok("GET", name)

        while not (operation := await patiently(look))["done"]:
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            killed[kill_one(broker, dice)] += 1
        assert min(killed["session"], killed["worker"]) >= 2, killed
        assert operation["response"] == {"@type": operation["response"]["@type"], "copied": str(MESSAGES)}
        copied: list[str] = []

        async def listed(token: str) -> Json:
            params = {"order": "oldest", "pageSize": 1000, "pageToken": token}
            return await rest.ok("GET", f"{rest.topic('other')}/messages", params=params)

        token, more = "", True
        while more:
            page = await patiently(lambda token=token: listed(token))  # type: ignore[misc]
            copied += [text(each) for each in page["messages"]]
            token = page.get("nextPageToken", "")
            more = bool(token)
        assert max(Counter(copied).values()) == 1
        for key in KEYS:
            of_key = [each for each in copied if each.startswith(f"{key} ")]
            assert of_key == [f"{key} {number}" for number in range(OF_A_KEY)]
