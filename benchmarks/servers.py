"""The servers under test: started, looked at, stopped."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from benchmarks.generators import REPOSITORY
from benchmarks.wire import Connection, LoadFailed, build_request
from broker.db.embedded.cluster import Cluster

_HOST = "127.0.0.1"
_START_SECONDS = 90.0
_STOP_SECONDS = 20.0
_CHECK_SECONDS = 0.05  # between two looks at what has arrived
_READY = re.compile(r"^Ready: http://[^:]+:(\d+)", re.MULTILINE)
_JAR = "platform/pubsub-emulator/lib/cloud-pubsub-emulator-*.jar"


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What arrived at a lane of the sink: `distinct` by path and message id.

    `first` and `last` are monotonic times, as are those in `rejected`, when requests were not taken; `delays` are
    seconds from the time in each message to its arrival.
    """

    count: int
    distinct: int
    first: float
    last: float
    delays: Sequence[float]
    rejected: Sequence[float]

    @property
    def per_second(self) -> float:
        return (self.count - 1) / (self.last - self.first) if self.last > self.first else 0.0


class Server(ABC):
    """A server process and its children.

    stopped ──start──► running ──stop──► stopped; a server that died counts as stopped.
    """

    name: str
    stop_signal = signal.SIGINT
    checkout = REPOSITORY  # where its processes run: Python finds the modules of this directory first

    def __init__(self) -> None:
        self.host, self.port = _HOST, 0
        self.directory = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._seen: set[psutil.Process] = set()  # also what outlives the process that started it

    @property
    def started(self) -> bool:
        """Started and not yet stopped; it may have died since."""
        return self._process is not None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has printed."""
        return (self.directory / "server.log").read_text(errors="replace")

    @property
    def last_words(self) -> str:
        """For a failure's report: whether the server lives, and the last line of its log that tells of an error."""
        code = None if self._process is None else self._process.poll()
        state = "it is running" if code is None else f"it ended with {code}"
        reporting = [line.strip() for line in self.log.splitlines() if "Error" in line or "Exception" in line]
        return ", ".join([state, *reporting[-1:]])

    def start(self) -> None:
        """Start it on fresh data and wait until it serves.  Raises LoadFailed."""
        self.stop()
        self.directory = Path(tempfile.mkdtemp(prefix="pubsub-bench-"))
        environment = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
        with (self.directory / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                cwd=self.checkout,
                env=environment | dict(self._environment()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is the benchmark's: it stops its servers in order
            )
        deadline = time.monotonic() + _START_SECONDS
        while not self._serves():
            if not self.running or time.monotonic() > deadline:
                last = " / ".join(self.log.strip().splitlines()[-3:])
                self.stop()
                raise LoadFailed(f"{self.name} did not start: {last}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End it and everything that it started, and remove its data.  Does nothing if it was not started."""
        if self._process is None:
            return
        self.processes()
        if self.running:
            self._process.send_signal(self.stop_signal)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        for victim in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):  # psutil tells a reused number from the same process
                victim.kill()
        self._process.wait()
        psutil.wait_procs(self._seen, timeout=_STOP_SECONDS)  # what still writes would keep its directory
        self._process = None
        self._seen.clear()
        shutil.rmtree(self.directory, ignore_errors=True)

    def processes(self) -> list[psutil.Process]:
        """The server's process and all below it, as of now."""
        if self._process is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            top = psutil.Process(self._process.pid)
            found = [top, *top.children(recursive=True)]
            self._seen.update(found)
            return found
        return []

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time used so far by the server's processes, by program."""
        used: dict[str, float] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                program = _program(process)
                used[program] = used.get(program, 0.0) + times.user + times.system
        return used

    def memory_bytes(self) -> dict[str, int]:
        """Memory by program: resident for Python and Java, proportional (shared pages once) for PostgreSQL."""
        used: dict[str, int] = {}
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                program = _program(process)
                memory = _proportional(process) if program == "postgres" else process.memory_info().rss
                used[program] = used.get(program, 0) + memory
        return used

    def resident_bytes(self) -> int:
        """Memory of the server's Python processes; takes less time than `memory_bytes`."""
        used = 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                used += process.memory_info().rss if _program(process) == "python" else 0
        return used

    def _environment(self) -> Mapping[str, str]:
        """What the server's environment has besides this process's; asked for after the command."""
        return {}

    @abstractmethod
    def _command(self) -> Sequence[str]: ...

    @abstractmethod
    def _serves(self) -> bool: ...


def _program(process: psutil.Process) -> str:
    name: str = process.name()
    return "python" if name.startswith("python") else name


def _proportional(process: psutil.Process) -> int:
    try:
        shares: int = process.memory_full_info().pss
    except psutil.AccessDenied:  # another user's process; resident memory then counts shared pages many times
        shares = process.memory_info().rss
    return shares


class Broker(Server):
    """Our broker on its embedded PostgreSQL."""

    name = "broker"

    def __init__(self, workers: int = 1) -> None:
        super().__init__()
        self._workers = workers

    @property
    def database_url(self) -> str:
        """The embedded PostgreSQL, by its unix socket, where the broker's tables are found by their names."""
        return f"{Cluster(self.directory / 'data').url}&options=-csearch_path%3Dbroker"

    @property
    def superuser_url(self) -> str:
        """The embedded PostgreSQL, as the role that may change its settings."""
        return Cluster(self.directory / "data").superuser_url

    def _command(self) -> Sequence[str]:
        return [
            *(sys.executable, "-m", "broker", "serve", "--host", self.host, "--port", "0"),
            *("--workers", str(self._workers), "--data-dir", str(self.directory / "data")),
        ]

    def _serves(self) -> bool:
        ready = _READY.search(self.log)
        if ready:
            self.port = int(ready[1])
        return ready is not None


class BrokerOf(Broker):
    """The broker of a checkout, in whose `.venv` it is installed."""

    name = "broker of a checkout"

    def __init__(self, checkout: Path, workers: int = 1) -> None:
        super().__init__(workers)
        self.checkout = checkout.absolute()

    def _command(self) -> Sequence[str]:
        # By its command: with -m, Python would find this checkout's broker first.
        _, _, _, *arguments = super()._command()
        return [str(self.checkout / ".venv/bin/broker"), *arguments]


class ResettableBroker(Broker):
    """Our broker, which lets projects be reset."""

    name = "broker that resets projects"

    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--allow-reset"]


class GuardedBroker(Broker):
    """Our broker, which asks who calls."""

    name = "broker with authentication"

    def _command(self) -> Sequence[str]:
        # The endpoint of pushes is on this machine.
        return [*super()._command(), "--auth", "required", "--push-private-addresses", "allow"]

    @property
    def admin_key(self) -> Path:
        """The file of the key that may do everything."""
        return self.directory / "data" / "admin-key.json"


class PlainHttpBroker(Broker):
    """Our broker with HTTP/1.1 alone on its port: nobody looks at a connection's first bytes."""

    name = "broker without gRPC"

    def _command(self) -> Sequence[str]:
        python, _, _, *arguments = super()._command()
        return [python, "-m", "benchmarks.plain_http", *arguments]


class EmptyServer(Broker):
    """A handler that answers {} to everything, behind the broker's own HTTP server: what HTTP alone costs."""

    name = "empty"

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.empty_server"]


class Sink(Broker):
    """A fast endpoint for pushes that notes what arrives (benchmarks/push_sink.py)."""

    name = "sink"

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-m", "benchmarks.push_sink"]

    def url(self, lane: str, *, hang: bool = False, poison: str = "") -> str:
        """Where to push to; below it any path may follow.  `poison`: what becomes of such messages."""
        does = f"poison-{poison}" if poison else "hang" if hang else "ok"
        return f"http://{self.host}:{self.port}/{does}/{lane}"

    def arrivals(self, lane: str, also: Literal["", "/delays", "/forget", "/down", "/up"] = "") -> Arrivals:
        """What has arrived there so far; with every delay; or from then on forgotten; or the lane goes down or up.

        Raises LoadFailed.
        """
        connection = Connection(self.host, self.port)
        try:
            request = build_request("GET", f"/control/{lane}{also}", b"")
            return Arrivals(**json.loads(connection.call(request)))
        finally:
            connection.close()

    def wait(self, lane: str, count: int, seconds: float) -> Arrivals:
        """Wait until so many different pushes have arrived, at most for so long.  Raises LoadFailed."""
        deadline = time.monotonic() + seconds
        while True:
            seen = self.arrivals(lane)
            if seen.distinct >= count or time.monotonic() > deadline:
                return seen
            time.sleep(_CHECK_SECONDS)


class Emulator(Server):
    """Google's emulator.  It keeps everything in memory, so its heap is bounded."""

    name = "emulator"

    def __init__(self, jar: Path, heap: str = "1g") -> None:
        """`heap`: as for java's -Xmx; empty: no options at all, as gcloud starts it."""
        super().__init__()
        self._jar = jar
        self._heap = heap

    def with_heap(self, heap: str) -> "Emulator":
        """Another one, not started."""
        return Emulator(self._jar, heap)

    def _command(self) -> Sequence[str]:
        [self.port] = free_ports(self.host, 1)
        # Its HTTP server loses buffers outside the heap, about 100 MB for 300,000 messages; bounded by the heap's
        # size (the default) it stops answering within one measure.
        memory = (f"-Xmx{self._heap}", "-XX:MaxDirectMemorySize=3g") if self._heap else ()
        return ["java", *memory, "-jar", str(self._jar), f"--host={self.host}", f"--port={self.port}"]

    def _serves(self) -> bool:
        with contextlib.suppress(LoadFailed):
            connection = Connection(self.host, self.port)
            try:
                connection.send(build_request("GET", "/v1/projects/bench/topics", b""))
                return connection.receive_any().status == 200
            finally:
                connection.close()
        return False


def free_ports(host: str, count: int) -> list[int]:
    """Ports that nobody listens on, at this moment."""
    with contextlib.ExitStack() as held:
        return [held.enter_context(socket.create_server((host, 0))).getsockname()[1] for _ in range(count)]


def find_emulator() -> Path | None:
    """The emulator's jar: PUBSUB_EMULATOR_JAR, or the one of the gcloud installation; None without it or java."""
    if shutil.which("java") is None:
        return None
    if named := os.environ.get("PUBSUB_EMULATOR_JAR"):
        return Path(named) if Path(named).is_file() else None
    if shutil.which("gcloud") is None:
        return None
    found = subprocess.run(
        ["gcloud", "info", "--format=value(installation.sdk_root)"], capture_output=True, text=True, check=False
    )
    root = found.stdout.strip()
    jars = sorted(Path(root).glob(_JAR)) if root else []
    return jars[-1] if jars else None
