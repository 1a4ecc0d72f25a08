"""kill -9 of brokers and of PostgreSQL's sessions, again and again during a redrive: no message
is lost or doubled (G2).

What a runner that writes down its progress apart from its work does then is in
tests/features/operations/test_operations.py.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.durability.killing import drain_patiently, kill_until_done, patiently
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, message

StartBroker = Callable[..., BrokerProcess]

KEYS, OF_A_KEY = [f"k{number}" for number in range(300)], 4  # of a key one message a second is given up
MESSAGES = len(KEYS) * OF_A_KEY
SEED = 20261123
OPTIONS = ("--port", "0", "--workers", "2", "--min-delivery-attempts", "1")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def _give_up(rest: Rest) -> None:
    await rest.create_topic()
    await rest.create_topic("dead")
    await rest.create_subscription("dead-sub", "dead")
    policy = {"deadLetterTopic": rest.topic("dead"), "maxDeliveryAttempts": 1}
    await rest.create_subscription(deadLetterPolicy=policy, enableMessageOrdering=True)
    await rest.create_subscription("bystander")
    for key in KEYS:
        await rest.publish(*(message(f"{key} {number}", orderingKey=key) for number in range(OF_A_KEY)))
    await rest.drain("bystander")

    async def failed() -> bool:
        received = await rest.pull(max_messages=1000)
        if received:
            await rest.modify_ack_deadline(received, 0)
        position = await rest.ok("GET", f"{rest.subscription('dead-sub')}/snapshot")
        return int(position["undeliveredMessages"]) == MESSAGES

    await eventually(failed)


async def test_a_redrive_is_exact_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await _give_up(rest)
        body = {"maxMessagesPerSecond": 300}
        name = (await rest.ok("POST", f"{rest.subscription()}:redrive", body))["name"]
        metadata = await kill_until_done(broker, rest, name, dice)
        assert metadata["counts"] == {"redriven": str(MESSAGES)}
        assert metadata["done"] == str(MESSAGES)
        came_back = await drain_patiently(rest)
        assert max(Counter(came_back).values()) == 1
        for key in KEYS:
            of_key = [each for each in came_back if each.startswith(f"{key} ")]
            assert of_key == [f"{key} {number}" for number in range(OF_A_KEY)]
        for other in ("bystander", "dead-sub"):
            assert await patiently(lambda other=other: rest.pull(other)) == []  # type: ignore[misc]
