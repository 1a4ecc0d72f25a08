"""What faults work on: brokers, their processes, and their database."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg

from broker.embedded_postgres.cluster import Cluster
from tests.faults.clocks import Clocks
from tests.faults.disk import Disk
from tests.faults.network import Network
from tests.faults.versions import Versions
from tests.fixtures.broker import BrokerProcess

ENVIRONMENT = {"BROKER_PULL_WAIT_SECONDS": "1", "BROKER_SHARDS_PER_TOPIC": "2"}
WORKERS = 2  # of a lone broker; each of several has one
_READY_SECONDS = 60.0
_TRIES = 100
_STARTS = 30

Session = psycopg.AsyncConnection[Any]


class World:
    """One broker with several workers that embeds its PostgreSQL, or several brokers on one that the suite runs.

    `external`: it runs it for one broker, too, and the doors of a proxy stand between clients and each broker
    (`client_doors`), and between each broker and the database (`database_doors`).

    `disk`: the database's is small, and can be filled; `own_clocks`: those of the brokers can be set; `versions`:
    brokers are of the release at first.  What there is for it: `disk`, `clocks`, `versions`.

    `urls` is where clients find the brokers; `gives` names what kinds of faults may need; `dice` decide for faults.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        external: bool = False,
        disk: bool = False,
        own_clocks: bool = False,
        versions: bool = False,
        seed: int = 0,
    ) -> None:
        self.urls: list[str] = []
        self.brokers: list[BrokerProcess] = []
        self.network = Network(seed)
        self.client_doors: list[str] = []
        self.database_doors: list[str] = []
        given = {"external": external, "disk": disk, "clocks": own_clocks, "versions": versions}
        self.gives = {""} | {name for name, is_given in given.items() if is_given}
        self._external = external
        self._database_urls: list[str] = []  # as the brokers have them
        self.dice = random.Random(f"{seed}/faults")
        self._restarting = asyncio.Lock()  # one at a time
        self._directory = directory
        self._count = brokers
        beside = directory.with_name(f"{directory.name}-suite")
        self.disk = Disk(directory) if disk else None
        self.clocks = Clocks(beside) if own_clocks else None
        self.versions = Versions(beside, brokers=brokers) if versions else None
        self._cluster = Cluster(directory)  # for its URL; the broker or a process of its own runs it
        self._postgres: subprocess.Popen[str] | None = None
        self._log: list[str] = []  # of brokers that are gone, as far as nobody has taken it
        self._log_taken: dict[int, int] = {}  # of those that are here, by process id: how many lines were taken

    @property
    def database_url(self) -> str:
        return self._cluster.url

    @asynccontextmanager
    async def running(self) -> AsyncIterator["World"]:
        """Everything is up within the block."""
        try:
            await asyncio.to_thread(self._start_all)
            yield self
        finally:
            await asyncio.to_thread(self._stop_all)

    def _start_all(self) -> None:
        if self._external:
            self.network.start()
        if self.disk is not None:
            self.disk.mount()
        if self.versions is not None:
            self.versions.prepare()
        if self._external or self._count > 1 or self.versions is not None:
            self._start_postgres()
        for place in range(self._count):
            self._database_urls.append(self._way_to_database(place))
            self.brokers.append(self._start(place, 0))
            self.urls.append(self._way_for_clients(place))

    def _stop_all(self) -> None:
        for broker in self.brokers:
            broker.stop()
        if self._postgres is not None:
            self._postgres.communicate("")
        self.network.stop()
        if self.disk is not None:
            self.disk.unmount()

    def _way_to_database(self, place: int) -> str:
        if not self._external:
            return self._cluster.url
        self.database_doors.append(f"database of {place}")
        return self.network.open_database(self.database_doors[place], self._cluster.url)

    def _way_for_clients(self, place: int) -> str:
        url = self.brokers[place].url
        if not self._external:
            return url
        self.client_doors.append(f"clients of {place}")
        return f"http://{self.network.open(self.client_doors[place], urlsplit(url).netloc)}"

    def _start_postgres(self) -> None:
        program = [sys.executable, "-m", "tests.faults.postgres", str(self._directory)]
        pipe = subprocess.PIPE
        self._postgres = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self._postgres.stdout is not None
        assert self._postgres.stdout.readline().strip() == self._cluster.url

    def _start(self, place: int, port: int) -> BrokerProcess:
        arguments = ["--port", str(port), "--workers", str(WORKERS if self._count == 1 else 1)]
        if self._postgres is None:
            arguments += ["--data-dir", str(self._directory)]
        else:
            arguments += ["--database-url", self._database_urls[place]]
        own = self.clocks.environment(place) if self.clocks else {}
        options = self.versions.options(place) if self.versions else {}
        for _ in range(_STARTS):
            broker = BrokerProcess(*arguments, env=ENVIRONMENT | own, **options)
            try:
                return broker.wait_until_ready()
            except AssertionError:  # it found no database, because of another fault; somebody starts it again
                broker.stop()
                self._log += broker.log
        raise AssertionError(f"a broker does not start: {self._log[-20:]}")

    # --- processes -------------------------------------------------------------------------------------------

    def workers(self) -> list[psutil.Process]:
        """Of all brokers."""
        return [worker for broker in self.brokers for worker in broker.workers()]

    def postmaster(self) -> psutil.Process | None:
        """None: it is being started again."""
        parent = psutil.Process(self.brokers[0].process.pid if self._postgres is None else self._postgres.pid)
        return next((child for child in parent.children() if child.name() == "postgres"), None)

    async def kill_a_broker(self) -> None:
        """With its workers, but not PostgreSQL; it is started again where it was."""
        async with self._restarting:
            await self._restart(self.dice.randrange(len(self.brokers)), BrokerProcess.kill)

    async def change_version(self, place: int) -> None:
        """The broker stops, and one of the other version starts where it was."""
        assert self.versions is not None
        async with self._restarting:
            self.versions.change(place)
            await self._restart(place, _stop)

    async def _restart(self, place: int, end: Callable[[BrokerProcess], object]) -> None:
        old = self.brokers[place]
        await asyncio.to_thread(end, old)
        self._log += self._new_lines(old)
        self.brokers[place] = await asyncio.to_thread(self._start, place, urlsplit(old.url).port or 0)

    async def until_ready(self) -> None:
        """Every broker serves, and reaches its database; the proxy is not asked."""
        async with httpx.AsyncClient(timeout=5) as client, asyncio.timeout(_READY_SECONDS):
            for broker in list(self.brokers):
                while not await _is_ready(client, broker.url):  # noqa: ASYNC110  # another process's doing
                    await asyncio.sleep(0.1)

    def take_log(self) -> list[str]:
        """What brokers have logged since this was asked last."""
        lines = self._log + [line for broker in self.brokers for line in self._new_lines(broker)]
        self._log = []
        return lines

    def _new_lines(self, broker: BrokerProcess) -> list[str]:
        taken = self._log_taken.get(broker.process.pid, 0)
        lines = broker.log[taken:]
        self._log_taken[broker.process.pid] = taken + len(lines)
        return lines

    # --- the database ----------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """A session of an operator's, which waits for a database that is away.  Raises psycopg.Error."""
        session = await self.connect()
        try:
            yield session
        finally:
            await session.close()

    async def connect(self) -> Session:
        """Raises psycopg.OperationalError if the database stays away."""
        for n in range(_TRIES):
            try:
                return await psycopg.AsyncConnection.connect(
                    self.database_url, autocommit=True, connect_timeout=5, application_name="fault"
                )
            except psycopg.OperationalError:
                if n == _TRIES - 1:
                    raise
            await asyncio.sleep(0.1)
        raise AssertionError


def _stop(broker: BrokerProcess) -> None:
    try:
        broker.stop()
    except subprocess.TimeoutExpired:  # a fault has stopped it, or one of its processes
        broker.kill()


async def _is_ready(client: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await client.get(f"{url}/readyz")).status_code == 200
    except httpx.HTTPError:
        return False
