"""Killing what does the work of an operation, and calls that go on all the same."""

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import psutil

from tests.fixtures.broker import BrokerProcess, eventually


async def patiently(call: Callable[[], Any]) -> Any:
    """Until it is answered: what it asks of may be starting again."""

    async def answered() -> list[Any]:
        with suppress(httpx.HTTPError, AssertionError):
            return [await call()]
        return []

    [answer] = await eventually(answered, seconds=60)
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
