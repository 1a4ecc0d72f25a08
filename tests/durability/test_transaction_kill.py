"""kill -9 of the processes that relay, again and again, while an application commits and rolls back: what was
committed comes once, in the order of the commits, and nothing of what was rolled back (J7).
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import psycopg
import pytest

from broker.db.database_url import DEFAULT_SCHEMA
from broker.db.embedded.cluster import Cluster
from broker.features.outbox.application_functions import grant
from tests.durability.killing import patiently
from tests.fixtures.application import publish
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, text

StartBroker = Callable[..., BrokerProcess]

KILLED, LEAST = 10, 200  # processes, and transactions, before it ends
KEYS = ("a", "b", "")
SEED = 20261125
TOPIC = "projects/p/topics/topic"

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(400)]


class Application:
    """One transaction after the other; `committed`: the texts of each key."""

    def __init__(self, url: str) -> None:
        self.committed: dict[str, list[str]] = {key: [] for key in KEYS}
        self.count = 0
        self.stopping = False
        self._url, self._dice = url, random.Random(SEED)

    def run(self) -> None:
        with psycopg.connect(self._url) as session:
            while not (self.stopping and self.count >= LEAST):
                key, size = self._dice.choice(KEYS), self._dice.choice((1, 1, 3))
                texts = [f"{self.count}-{n}" for n in range(size)]
                for each in texts:
                    publish(session, each, None, key, topic=TOPIC)
                self.count += 1
                if self._dice.random() < 0.3:
                    session.rollback()
                else:
                    session.commit()
                    self.committed[key] += texts


async def _kill_again_and_again(broker: BrokerProcess, rest: Rest) -> None:
    """Each of the two in turn: whichever relays is killed within two of them."""
    dice = random.Random(SEED)
    for turn in range(KILLED):
        await patiently(lambda: rest.ok("GET", rest.topic()))
        await asyncio.sleep(dice.uniform(0.02, 0.3))
        workers = sorted(broker.workers(), key=lambda worker: worker.pid)
        with suppress(psutil.NoSuchProcess, IndexError):
            workers[turn % len(workers)].kill()


async def _come(rest: Rest) -> dict[str, dict[int, str]]:
    """By key and message id, in the order of the ids."""
    came: dict[str, dict[int, str]] = {key: {} for key in KEYS}
    while received := await patiently(lambda: rest.pull(max_messages=1000)):
        for each in received:
            came[each["message"].get("orderingKey", "")][int(each["message"]["messageId"])] = text(each)
        await patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
    return {key: dict(sorted(of_key.items())) for key, of_key in came.items()}


async def test_what_is_committed_comes_once_and_in_order_whoever_is_killed(
    start_broker: StartBroker, data_dir: Path
) -> None:
    options = ("--data-dir", str(data_dir), "--port", "0", "--workers", "2")
    broker = await asyncio.to_thread(start_broker, *options)
    url = Cluster(data_dir).url
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await rest.create_topic()
        await rest.create_subscription()
        await asyncio.to_thread(grant, url, schema=DEFAULT_SCHEMA, role="broker", project="projects/p")
        application = Application(url)
        running = asyncio.create_task(asyncio.to_thread(application.run))
        try:
            await _kill_again_and_again(broker, rest)
        finally:
            application.stopping = True
        await running

        async def is_relayed() -> bool:
            async with await psycopg.AsyncConnection.connect(url) as session:
                cursor = await session.execute(f"SELECT count(*)::int FROM {DEFAULT_SCHEMA}.outbox")
                return await cursor.fetchone() == (0,)

        await eventually(is_relayed)
        came = await _come(rest)
    for key in KEYS[:2]:
        assert list(came[key].values()) == application.committed[key]
    assert sorted(came[""].values()) == sorted(application.committed[""])
