"""A broker on servers of PostgreSQL that are started for it: a single one, or a cluster of Citus.

TEST_CITUS_BIN is the directory with the programs of a PostgreSQL that has Citus, as for the tests; both sides of a
comparison are started by them, with the same settings, those of the embedded PostgreSQL among them.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil
import psycopg

from benchmarks.servers import Broker
from broker.db.embedded.system_user import make_private_directory, running_as, unprivileged_user

PROGRAMS = os.environ.get("TEST_CITUS_BIN", "")
_FIRST_PORT = 5432  # numbers of sockets: nothing listens on a network
_SETTINGS = {
    "listen_addresses": "''",
    "wal_level": "logical",
    "max_connections": "150",
    "max_prepared_transactions": "300",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "jit": "off",
    "citus.enable_statistics_collection": "off",
    "citus.node_conninfo": "sslmode=prefer",
}


class Node:
    """One server of PostgreSQL, whose socket is in `directory`; its process number is in its data."""

    def __init__(self, name: str, directory: Path, number: int) -> None:
        self.name, self.port = name, _FIRST_PORT + number
        self._directory, self._data = directory, directory / str(self.port)
        self._user = unprivileged_user()

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [Path(PROGRAMS) / program, "-D", self._data, *arguments],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT, **running_as(self._user),
        )  # fmt: skip

    def start(self, *, citus: bool) -> None:
        settings = {name: value for name, value in _SETTINGS.items() if citus or not name.startswith("citus.")}
        if citus:
            settings["shared_preload_libraries"] = "citus"
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        log = self._directory / f"{self.port}.log"
        self._run("pg_ctl", "-w", "-l", str(log), "-o", f"-k {self._directory} -p {self.port} {options}", "start")
        if citus:
            self.ask("CREATE EXTENSION citus")

    def stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._directory}&port={self.port}"

    def ask(self, query: str, *parameters: object) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(query.encode(), parameters or None)

    def processes(self) -> list[psutil.Process]:
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        return []


class BrokerOnNodes(Broker):
    """Our broker, on a single server (`nodes` is None), or on a coordinator and so many other nodes of Citus.

    Processor time is told by node.  Without other nodes the coordinator has the shards itself.
    """

    def __init__(
        self, nodes: int | None, *, workers: int = 1, shards: int = 1, by_way_of_nodes: bool = False
    ) -> None:
        """`shards`: of a topic; `by_way_of_nodes`: hot statements do not go by way of the coordinator."""
        super().__init__(workers)
        self.name = "broker on PostgreSQL" if nodes is None else f"broker on Citus, {nodes} nodes"
        self._others, self._shards, self._by_way_of_nodes = nodes, shards, by_way_of_nodes
        self._place = Path()
        self._nodes: list[Node] = []

    def _command(self) -> Sequence[str]:
        self._begin_nodes()
        [coordinator, *_] = self._nodes
        url = coordinator.url
        migrate = [sys.executable, "-m", "broker", "migrate", "--database-url", url]
        if self._others is not None:
            migrate.append("--distribute")
        subprocess.run(migrate, check=True, stdout=subprocess.DEVNULL)
        return [
            *(sys.executable, "-m", "broker", "serve", "--host", self.host, "--port", "0"),
            *("--workers", str(self._workers), "--shards-per-topic", str(self._shards), "--database-url", url),
            *(("--hot-database-url", self._hot_url()) if self._by_way_of_nodes else ()),
        ]

    def _hot_url(self) -> str:
        _, *others = self._nodes
        ports = ",".join(str(node.port) for node in others)
        hosts = ",".join(str(self._place) for _ in others)
        return f"postgresql://postgres@/postgres?host={hosts}&port={ports}"

    def _begin_nodes(self) -> None:
        self._place = Path(tempfile.mkdtemp(prefix="pubsub-bench-nodes-"))
        make_private_directory(self._place, unprivileged_user())
        names = (
            ["postgres"]
            if self._others is None
            else ["coordinator", *map("node {}".format, range(1, self._others + 1))]
        )
        self._nodes = [Node(name, self._place, number) for number, name in enumerate(names)]
        for node in self._nodes:
            node.start(citus=self._others is not None)
        if self._others is not None:
            self._join()

    def _join(self) -> None:
        host, [coordinator, *others] = str(self._place), self._nodes
        coordinator.ask("SELECT citus_set_coordinator_host(%s, %s)", host, coordinator.port)
        for node in others:
            coordinator.ask("SELECT citus_add_node(%s, %s)", host, node.port)
        if not others:
            coordinator.ask(
                "SELECT citus_set_node_property(%s, %s, 'shouldhaveshards', true)", host, coordinator.port
            )

    def cpu_seconds(self) -> dict[str, float]:
        used = super().cpu_seconds()
        for node in self._nodes:
            used[node.name] = 0.0
            for process in node.processes():
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    used[node.name] += times.user + times.system + times.children_user + times.children_system
        return used

    def stop(self) -> None:
        super().stop()
        for node in self._nodes:
            node.stop()
        if self._nodes:
            shutil.rmtree(self._place, ignore_errors=True)
        self._nodes = []
