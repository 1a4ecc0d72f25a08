"""kill -9 of brokers and of PostgreSQL's sessions, again and again during a purge by a filter: what matches goes,
the rest comes, each once and those of a key in order (G2).
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

KEYS, OF_A_KEY = [f"k{number}" for number in range(60)], 20
PURGED = len(KEYS) * OF_A_KEY // 2
SEED = 20261125
OPTIONS = ("--port", "0", "--workers", "2", "--shards-per-topic", "3")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def test_a_purge_by_a_filter_is_exact_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        await rest.create_subscription(enableMessageOrdering=True)
        await rest.create_subscription("bystander")
        for key in KEYS:
            of_key = (message(f"{key} {n}", {"odd": str(n % 2)}, orderingKey=key) for n in range(OF_A_KEY))
            await rest.publish(*of_key)
        out = await rest.pull(max_messages=100)
        await rest.modify_ack_deadline(out, 0)  # some are rows already
        body = {"filter": 'attributes.odd = "1"', "maxMessagesPerSecond": 150}
        name = (await rest.ok("POST", f"{rest.subscription()}:purge", body))["name"]
        killed: Counter[str] = Counter()

        async def look() -> Json:
            return await rest.ok("GET", name)

        while not (operation := await patiently(look))["done"]:
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            kill_one(broker, dice, killed)
        assert min(killed["session"], killed["worker"]) >= 2, killed
        assert operation["metadata"]["counts"] == {"purged": str(PURGED)}
        came: list[str] = []
        while received := await patiently(lambda: rest.pull(max_messages=1000)):
            came += [text(each) for each in received]
            await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
        assert max(Counter(came).values()) == 1
        for key in KEYS:
            of_key = [each for each in came if each.startswith(f"{key} ")]
            assert of_key == [f"{key} {n}" for n in range(0, OF_A_KEY, 2)]
        assert len({text(each) for each in await rest.drain("bystander")}) == 2 * PURGED
