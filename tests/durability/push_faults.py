"""What befalls a broker under load: its processes die or stop for a while, its database goes away, its
subscriptions change.  What is a fault is noted in the histories.
"""

import asyncio
import random
import signal
import time
from collections.abc import Callable

import httpx
import psutil
import psycopg

from tests.durability.push_history import Fault
from tests.durability.push_workload import HEALED, PushWorkload
from tests.fixtures.broker import NO_TLS, BrokerProcess

STOPPED_SECONDS = 6.0  # longer than a process is missed
LONG_STOPPED_SECONDS = 16.0  # longer than what it has out is leased
_AFTERMATH_SECONDS = 3.0  # after the database is back, until the results of pushes are written again


class Faults:
    """Does them, one after the other.  `start()` gives a broker on the same database; `database_url` is that."""

    def __init__(
        self, workload: PushWorkload, start: Callable[[], BrokerProcess], database_url: str, *, seed: int
    ) -> None:
        self._workload = workload
        self._start = start
        self._database_url = database_url
        self._dice = random.Random(seed)
        self.broker: BrokerProcess

    async def start(self) -> None:
        self.broker = await asyncio.to_thread(self._start)
        self._workload.url = self.broker.url

    async def do(self, name: str) -> None:
        """The fault of this name, or another one of these methods."""
        await getattr(self, name)()

    def _note(self, kind: str, began: float) -> None:
        for history in self._workload.topics.values():
            history.faults.append(Fault(kind, began, time.monotonic()))

    async def kill_a_worker(self) -> None:
        victim = self._dice.choice(self.broker.workers())
        began = time.monotonic()
        victim.kill()
        await asyncio.to_thread(victim.wait)
        self._note("killed", began)

    async def kill_the_broker(self) -> None:
        began = time.monotonic()
        await asyncio.to_thread(self.broker.kill)
        self._note("killed", began)
        await self.start()

    async def restart(self) -> None:
        """Not a fault."""
        await asyncio.to_thread(self.broker.stop)
        await self.start()

    async def stop_a_worker(self, seconds: float = STOPPED_SECONDS) -> None:
        victim: psutil.Process = self._dice.choice(self.broker.workers())
        began = time.monotonic()
        victim.suspend()
        try:
            await asyncio.sleep(seconds)
        finally:
            victim.resume()
        self._note("stopped", began)

    async def stop_a_worker_for_long(self) -> None:
        await self.stop_a_worker(LONG_STOPPED_SECONDS)

    async def crash_postgres(self) -> None:
        """An immediate shutdown; the broker starts it again."""
        began = time.monotonic()
        postmaster = self.broker.postmaster()
        postmaster.send_signal(signal.SIGQUIT)
        await asyncio.to_thread(postmaster.wait)
        await self._until_ready()
        self._note("database", began)

    async def cut_connections(self) -> None:
        began = time.monotonic()
        async with await psycopg.AsyncConnection.connect(self._database_url, autocommit=True) as admin:
            await admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await self._until_ready()
        self._note("database", began)

    async def _until_ready(self) -> None:
        async with (
            httpx.AsyncClient(base_url=self.broker.url, timeout=30, verify=NO_TLS) as client,
            asyncio.timeout(30),
        ):
            while True:
                try:
                    if (await client.get("/readyz")).status_code == 200:
                        break
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(0.05)
        await asyncio.sleep(_AFTERMATH_SECONDS)

    async def switch_an_endpoint(self) -> None:
        """To another that behaves alike."""
        pushed = self._dice.choice(self._workload.pushed)
        await self._workload.push_to(pushed, pushed.plan.behaviour)

    async def switch_to_pull_and_back(self) -> None:
        pushed = self._dice.choice(self._workload.pushed)
        await self._workload.push_to(pushed, None)
        await asyncio.sleep(self._dice.uniform(0, 2))
        await self._workload.push_to(pushed, pushed.plan.behaviour if pushed.plan.fails else HEALED)

    async def pause_and_resume(self) -> None:
        pushed = self._dice.choice(self._workload.pushed)
        await self._workload.pause(pushed, self._dice.uniform(0.2, 1))
