"""kill -9 of brokers and of PostgreSQL's sessions, again and again during a copy and an import: each message is
stored once, and those of a key in its order (G2).

What a runner that writes down its progress apart from its work does then is in
tests/features/import_export/test_copying.py.
"""

import asyncio
import json
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
        importing = asyncio.create_task(_import_all(rest))
        killed: Counter[str] = Counter()

        async def check() -> Json:
            return await rest.ok("GET", name)

        while not (operation := await patiently(check))["done"] or not importing.done():
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            kill_one(broker, dice, killed)
        assert min(killed["session"], killed["worker"]) >= 2, killed
        assert operation["response"] == {"@type": operation["response"]["@type"], "copied": str(MESSAGES)}
        await importing
        for topic in ("other", "imported"):
            stored = [text(each) for each in await patiently(lambda topic=topic: _exported(rest, topic))]  # type: ignore[misc]
            assert max(Counter(stored).values()) == 1
            for key in KEYS:
                of_key = [each for each in stored if each.startswith(f"{key} ")]
                assert of_key == [f"{key} {number}" for number in range(OF_A_KEY)], topic


async def _import_all(rest: Rest) -> None:
    """A message of each key in each part, one part after the other; a part is sent until it is answered."""
    await patiently(lambda: rest.create_topic("imported", messageRetentionDuration="600s"))
    for number in range(OF_A_KEY):
        lines = [json.dumps(message(f"{key} {number}", orderingKey=key)) for key in KEYS]
        params = {"importId": "i", "part": number + 1}
        path, options = f"{rest.topic('imported')}:import", {"params": params, "content": "\n".join(lines)}
        answer = await patiently(lambda path=path, options=options: rest.ok("POST", path, **options))  # type: ignore[misc]
        assert answer["messageCount"] == str(len(KEYS))


async def _exported(rest: Rest, topic: str) -> list[Json]:
    answer = await rest.call("POST", f"{rest.topic(topic)}:export", {})
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.content.splitlines()]
