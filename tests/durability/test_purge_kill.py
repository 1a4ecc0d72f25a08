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

from tests.durability.killing import drain_patiently, kill_until_done
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, message

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
        metadata = await kill_until_done(broker, rest, name, dice)
        assert metadata["counts"] == {"purged": str(PURGED)}
        came = await drain_patiently(rest)
        assert max(Counter(came).values()) == 1
        for key in KEYS:
            in_order = [each for each in came if each.startswith(f"{key} ")]
            assert in_order == [f"{key} {n}" for n in range(0, OF_A_KEY, 2)]
        assert len(set(await drain_patiently(rest, "bystander"))) == 2 * PURGED
