"""Killing what does the work of an operation, and calls that go on all the same."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import psutil

from tests.fixtures.broker import BrokerProcess, Json, Rest, eventually, text


async def patiently(call: Callable[[], Any]) -> Any:
    """Until it is answered: what it asks of may be starting again."""

    async def answered() -> list[Any]:
        with suppress(httpx.HTTPError, AssertionError):
            return [await call()]
        return []

    [answer] = await eventually(answered)
    return answer


def kill_one(broker: BrokerProcess, dice: random.Random, killed: Counter[str]) -> None:
    """A worker, or a session of the database, which makes the server end all of them: what was `killed` less."""
    sessions = [child for child in broker.postmaster().children() if "idle" in " ".join(child.cmdline())]
    turn = killed["session"] < killed["worker"] or (killed["session"] == killed["worker"] and dice.random() < 0.5)
    victims: list[psutil.Process] = sessions if turn and sessions else broker.workers()
    with suppress(psutil.NoSuchProcess, IndexError):
        victim = dice.choice(victims)
        victim.kill()
        killed["session" if victims is sessions else "worker"] += 1


async def kill_until_done(broker: BrokerProcess, rest: Rest, name: str, dice: random.Random) -> Json:
    """The metadata of an operation that has ended, though workers and sessions were killed again and again."""
    killed: Counter[str] = Counter()
    while not (operation := await patiently(lambda: rest.ok("GET", name)))["done"]:
        await asyncio.sleep(dice.uniform(0.05, 0.5))
        kill_one(broker, dice, killed)
    assert min(killed["session"], killed["worker"]) >= 2, killed
    assert operation["metadata"]["state"] == "SUCCEEDED", operation
    metadata: Json = operation["metadata"]
    return metadata


async def drain_patiently(rest: Rest, name: str = "sub") -> list[str]:
    """The texts of all that comes, in the order in which it does; all of it is acked."""
    came: list[str] = []
    while received := await patiently(lambda: rest.pull(name, max_messages=1000)):
        came += [text(each) for each in received]
        await patiently(lambda received=received: rest.acknowledge(received, name))  # type: ignore[misc]
    return came
