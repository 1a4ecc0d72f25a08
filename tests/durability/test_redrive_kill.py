"""kill -9 of brokers and of PostgreSQL's sessions, again and again during a redrive: no message
is lost or doubled (G2).

What a runner that writes down its progress apart from its work does then is in tests/workers/test_operations.py.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.fixtures.broker import NO_TLS, BrokerProcess, Json, Rest, eventually, message, text

StartBroker = Callable[..., BrokerProcess]

KEYS, OF_A_KEY = [f"k{number}" for number in range(300)], 4  # of a key one message a second is given up
MESSAGES = len(KEYS) * OF_A_KEY
SEED = 20261123
OPTIONS = ("--port", "0", "--workers", "2", "--min-delivery-attempts", "1")

pytestmark = [pytest.mark.slow, pytest.mark.ci, pytest.mark.timeout(180)]


async def _patiently(call: Callable[[], Any]) -> Any:
    """Until it is answered: what it asks of may be starting again."""

    async def answered() -> list[Any]:
        with suppress(httpx.HTTPError, AssertionError):
            return [await call()]
        return []

    [answer] = await eventually(answered, seconds=60)
    return answer


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

    await eventually(failed, seconds=60)


def _kill(broker: BrokerProcess, dice: random.Random) -> str:
    """A worker, or a session of the database, which makes the server end all of them."""
    sessions = [child for child in broker.postmaster().children() if "idle" in " ".join(child.cmdline())]
    victims: list[psutil.Process] = sessions if dice.random() < 0.4 and sessions else broker.workers()
    with suppress(psutil.NoSuchProcess, IndexError):
        victim = dice.choice(victims)
        victim.kill()
        return "session" if victims is sessions else "worker"
    return ""


async def test_a_redrive_is_exact_whatever_is_killed(start_broker: StartBroker, data_dir: Path) -> None:
    broker = await asyncio.to_thread(start_broker, "--data-dir", str(data_dir), *OPTIONS)
    dice = random.Random(SEED)
    async with httpx.AsyncClient(base_url=broker.url, timeout=60, verify=NO_TLS) as client:
        rest = Rest(client, "projects/p")
        await _give_up(rest)
        body = {"maxMessagesPerSecond": 300}
        name = (await rest.ok("POST", f"{rest.subscription()}:redrive", body))["name"]
        killed: Counter[str] = Counter()

        async def look() -> Json:
            return await rest.ok("GET", name)

        while not (operation := await _patiently(look))["done"]:
            await asyncio.sleep(dice.uniform(0.05, 0.5))
            killed[_kill(broker, dice)] += 1
        assert min(killed["session"], killed["worker"]) >= 2, killed
        assert operation["response"] == {"@type": operation["response"]["@type"], "redriven": str(MESSAGES)}
        assert operation["metadata"]["done"] == str(MESSAGES)
        came_back: list[str] = []
        while received := await _patiently(lambda: rest.pull(max_messages=1000)):
            came_back += [text(each) for each in received]
            await _patiently(lambda received=received: rest.acknowledge(received))  # type: ignore[misc]
        assert max(Counter(came_back).values()) == 1
        for key in KEYS:
            of_key = [each for each in came_back if each.startswith(f"{key} ")]
            assert of_key == [f"{key} {number}" for number in range(OF_A_KEY)]
        for other in ("bystander", "dead-sub"):
            assert await _patiently(lambda other=other: rest.pull(other)) == []  # type: ignore[misc]
