"""A broker to attack, and a good client beside each attack.

A test module has a broker process of its own, with the settings of its SETTINGS if it has any.  When the module's
tests are done the broker must stop in order, and must not have logged a fault.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.cli.processes import faults
from tests.fixtures.broker import NO_TLS, BrokerProcess, Rest, eventually, text

MEGABYTE = 1_000_000
ROUND_SECONDS = 60  # for one publish, pull and ack beside an attack; only a hang takes so long


@pytest.fixture(scope="module")
def broker(clone: Callable[[], Any], request: pytest.FixtureRequest) -> Iterator[BrokerProcess]:
    """A broker of the module's own."""
    settings: dict[str, str] = getattr(request.module, "SETTINGS", {})
    with clone() as database_url:
        broker = BrokerProcess("--database-url", database_url, "--port", "0", env=settings).wait_until_ready()
        try:
            yield broker
        finally:
            code = broker.stop()
        assert code == 0
        assert faults(broker) == []


def rss(broker: BrokerProcess) -> int:
    """Bytes of memory that the broker's workers hold."""
    return sum(worker.memory_info().rss for worker in broker.workers())


class Memory:
    """The most that the broker held while the block ran, beyond what it held before."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self.grown = 0

    async def __aenter__(self) -> "Memory":
        self._before = rss(self._broker)
        self._looking = asyncio.create_task(self._check())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)

    async def _check(self) -> None:
        while True:
            self.grown = max(self.grown, rss(self._broker) - self._before)
            await asyncio.sleep(0.02)


class GoodClient:
    """Publishes a message, pulls it and acks it, again and again; each call must succeed."""

    def __init__(self, rest: Rest) -> None:
        self.rest = rest
        self.rounds = 0

    async def round(self) -> None:
        async with asyncio.timeout(ROUND_SECONDS):
            sent = f"round {self.rounds}"
            await self.rest.publish(sent)
            received: list[Any] = []
            while not received:
                received = await self.rest.pull(wait=True)
            assert [text(message) for message in received] == [sent]
            await self.rest.acknowledge(received)
        self.rounds += 1

    async def run(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(0.01)


@asynccontextmanager
async def good_client(broker: BrokerProcess) -> AsyncIterator[GoodClient]:
    """Runs beside the block; was served in it, and is served by the same processes when it has ended."""
    workers = [worker.pid for worker in broker.workers()]
    async with httpx.AsyncClient(base_url=broker.url, timeout=ROUND_SECONDS, verify=NO_TLS) as client:
        good = GoodClient(Rest(client, f"projects/good-{uuid.uuid4().hex[:10]}"))
        await good.rest.create_topic()
        await good.rest.create_subscription()
        await good.round()
        running = asyncio.create_task(good.run())
        try:
            yield good
            last = good.rounds
            # The second of two more rounds began after the attack.
            await eventually(lambda: good.rounds > last + 1 or running.done(), seconds=2 * ROUND_SECONDS)
            if running.done():
                await running
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
    assert [worker.pid for worker in broker.workers()] == workers, "a worker process has ended"
