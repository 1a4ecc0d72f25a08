"""What faults work on: brokers, their processes, and their database."""

import asyncio
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg

from broker.db.embedded.cluster import Cluster
from broker.db.embedded.roles import SUPERUSER
from tests.faults.clients.endpoints import Endpoints
from tests.faults.clocks import Clocks
from tests.faults.disk import Disk
from tests.faults.guard import Guard
from tests.faults.network import Network
from tests.faults.nodes import RunningNodes
from tests.faults.versions import Versions
from tests.fixtures.broker import NO_TLS, BrokerProcess
from tests.fixtures.citus import Nodes

ENVIRONMENT = {
    "BROKER_PULL_WAIT_SECONDS": "1",
    "BROKER_SHARDS_PER_TOPIC": "2",
    "BROKER_MIN_DELIVERY_ATTEMPTS": "1",
    "BROKER_DISK_FREE_MIN": "0",  # a fault fills the disk altogether; what pauses before has tests of its own
    "PYTHONFAULTHANDLER": "1",  # a worker that gets SIGABRT says where it stands
}
WORKERS = 2  # of a lone broker; each of several has one
_READY_SECONDS = 120.0
_WRITING_SECONDS = 2.0  # of a traceback
_TRIES = 100
_STARTS = 30

Session = psycopg.AsyncConnection[Any]


class World:
    """One broker with several workers that embeds its PostgreSQL, or several brokers on one that the suite runs.

    `external`: it runs it for one broker, too, and the APIs of a proxy stand between clients and each broker
    (`client_gates`), and between each broker and the database (`database_gates`).

    `disk`: the database has one of its own, which can be filled; `clocks`: the brokers have their own, which can be
    set; `versions`: the brokers can be replaced by those of the next version.  `guarded`: a lone broker asks
    who calls, over TLS (`guard`).  `citus`: the database lies on nodes of Citus, and each other broker goes by way
    of its workers.

    `urls` is where clients find the brokers; `gives` names what kinds of faults may need; `dice` decide for faults.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 1,
        external: bool = False,
        disk: bool = False,
        clocks: bool = False,
        versions: bool = False,
        guarded: bool = False,
        citus: bool = False,
        seed: int = 0,
        options: Sequence[str] = (),
    ) -> None:
        """`options`: of `broker serve`, beside those that the world gives."""
        self._options = options
        self.urls: list[str] = []
        self.brokers: list[BrokerProcess] = []
        self.endpoints: Endpoints | None = None  # of the workload that runs
        self.network = Network(seed)
        self.client_gates: list[str] = []
        self.database_gates: list[str] = []
        given = {"external": external, "disk": disk, "clocks": clocks, "versions": versions, "guarded": guarded}
        given["citus"] = citus
        self.gives = {""} | {name for name, is_given in given.items() if is_given}
        self._external = external
        self._database_urls: list[str] = []  # as the brokers have them
        self.dice = random.Random(f"{seed}/faults")
        self._restarting = asyncio.Lock()  # one at a time
        self._directory = directory / "disk" if disk else directory
        self._count = brokers
        self.disk = Disk(self._directory) if disk else None
        self.clocks = Clocks(directory / "clocks") if clocks else None
        self.versions = Versions(directory / "versions", brokers=brokers) if versions else None
        self.guard = Guard(directory.with_name(f"{directory.name}-guard")) if guarded else None
        self.citus = RunningNodes() if citus else None
        self._cluster = Cluster(self._directory)  # for its URL; the broker or a process of its own runs it
        self._postgres: subprocess.Popen[str] | None = None
        self._launched: list[BrokerProcess] = []  # all that were ever started
        self._over = False
        self._log: list[str] = []  # of brokers that are gone, as far as nobody has taken it
        self._log_taken: dict[int, int] = {}  # of those that are here, by process id: how many lines were taken

    @property
    def database_url(self) -> str:
        return self.citus.url if self.citus else self._cluster.url

    @property
    def superuser_url(self) -> str:
        return self.citus.url if self.citus else self._cluster.superuser_url

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
        if self.citus is not None:
            self.citus.start()
        elif self._external or self._count > 1 or self.versions is not None:
            self._start_postgres()
        for place in range(self._count):
            self._database_urls.append(self._way_to_database(place))
            self.brokers.append(self._start(place, 0))
            self.urls.append(self._way_for_clients(place))
        if self.guard is not None:
            self.guard.urls, self.guard.admin_key = self.urls, self._directory / "admin-key.json"

    def _stop_all(self) -> None:
        """Raises AssertionError where a broker must be killed."""
        self._over = True
        hung = [broker for broker in self.brokers if not _stops(broker)]
        for broker in self._launched:
            if broker.process.poll() is None:  # its start was under way when a run was cut short
                broker.kill()
        if self._postgres is not None:
            self._postgres.communicate("")
        if self.citus is not None:
            self.citus.stop()
        self.network.stop()
        if self.disk is not None:
            self.disk.unmount()
        assert not hung, f"did not stop: {[broker.log[-20:] for broker in hung]}"

    def _way_to_database(self, place: int) -> str:
        if not self._external:
            return self.database_url
        self.database_gates.append(f"database of {place}")
        return self.network.open_database(self.database_gates[place], self._cluster.url)

    def _way_for_clients(self, place: int) -> str:
        url = self.brokers[place].url
        if not self._external:
            return url
        self.client_gates.append(f"clients of {place}")
        return f"http://{self.network.open(self.client_gates[place], urlsplit(url).netloc)}"

    def _start_postgres(self) -> None:
        program = [sys.executable, "-m", "tests.faults.postgres", str(self._directory)]
        pipe = subprocess.PIPE
        self._postgres = subprocess.Popen(program, stdin=pipe, stdout=pipe, text=True, start_new_session=True)
        assert self._postgres.stdout is not None
        assert self._postgres.stdout.readline().strip() == self._cluster.url

    def _start(self, place: int, port: int) -> BrokerProcess:
        arguments = ["--port", str(port), "--workers", str(WORKERS if self._count == 1 else 1)]
        if self._postgres is None and self.citus is None:
            arguments += ["--data-dir", str(self._directory)]
        else:
            arguments += ["--database-url", self._database_urls[place]]
        if self.citus is not None and place % 2:
            arguments += ["--hot-database-url", Nodes.hot_url(self.citus.url)]
        arguments += self.guard.options if self.guard else ()
        arguments += self._options
        own = self.clocks.environment(place) if self.clocks else {}
        options = self.versions.options(place) if self.versions else {}
        for _ in range(_STARTS):
            assert not self._over, "the run ended"
            broker = BrokerProcess(*arguments, env=ENVIRONMENT | own, **options)
            self._launched.append(broker)
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

    def abort_workers(self) -> None:
        """They write where they stand into their log, and end."""
        for worker in self.workers():
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGABRT)
                worker.resume()
        time.sleep(_WRITING_SECONDS)

    @property
    def is_restarting(self) -> bool:
        """Whether a broker is being replaced by another."""
        return self._restarting.locked()

    async def kill_a_broker(self) -> None:
        """With its workers, but not PostgreSQL; it is started again where it was."""
        async with self._restarting:
            await self._restart(self.dice.randrange(len(self.brokers)), BrokerProcess.kill)

    async def change_version(self, place: int) -> None:
        """The broker stops, and one of the other version starts where it was."""
        assert self.versions is not None
        async with self._restarting:
            self.versions.change(place)
            await self._restart(place, _stops)

    async def _restart(self, place: int, end: Callable[[BrokerProcess], object]) -> None:
        old = self.brokers[place]
        await asyncio.to_thread(end, old)
        self._log += self._new_lines(old)
        self.brokers[place] = await asyncio.to_thread(self._start, place, urlsplit(old.url).port or 0)

    async def until_ready(self) -> None:
        """Every broker serves, and reaches its database; the proxy is not asked.  Raises TimeoutError."""
        why = ""
        try:
            async with (
                httpx.AsyncClient(timeout=5, verify=self.guard.tls if self.guard else NO_TLS) as client,
                asyncio.timeout(_READY_SECONDS),
            ):
                for broker in list(self.brokers):
                    while why := await _why_not_ready(client, broker.url):  # noqa: ASYNC110  # another process's doing
                        await asyncio.sleep(0.1)
        except TimeoutError:
            raise TimeoutError(f"a broker was not ready for {_READY_SECONDS:.0f} s: {why}") from None

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

    async def connect(self, *, tries: int = _TRIES) -> Session:
        """Raises psycopg.OperationalError if the database stays away."""
        for n in range(tries):
            try:
                return await psycopg.AsyncConnection.connect(
                    self.database_url,
                    user=SUPERUSER,  # faults may do what brokers may not
                    autocommit=True,
                    connect_timeout=5,
                    application_name="fault",
                    options="-c search_path=broker",
                )
            except psycopg.OperationalError:
                if n == tries - 1:
                    raise
            await asyncio.sleep(0.1)
        raise AssertionError


def _stops(broker: BrokerProcess) -> bool:
    """If it does not, it and all its children are killed, an embedded PostgreSQL too."""
    try:
        broker.stop()
    except subprocess.TimeoutExpired:
        parent = psutil.Process(broker.process.pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        broker.stop()
        return False
    return True


async def _why_not_ready(client: httpx.AsyncClient, url: str) -> str:
    """ "" if it is."""
    try:
        answer = await client.get(f"{url}/readyz")
    except httpx.HTTPError as error:
        return f"{url}: {error!r}"
    return "" if answer.status_code == 200 else f"{url}: {answer.text}"
