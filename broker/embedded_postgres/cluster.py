"""The embedded PostgreSQL: one cluster in a data directory, run as a child of the broker.

    no directory ──initdb──► stopped ──start──► running ──stop──► stopped
                                 ▲                  │ its postmaster dies: keep_running starts it again
                                 └──────────────────┘

The data directory is locked (flock) as long as a broker uses it; the kernel gives the lock back whatever way
the broker ends.  What outlived a broker or a postmaster (kill -9) is ended before a new postmaster starts.
"""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from broker.embedded_postgres.binaries import MAJOR_VERSION, bin_directory
from broker.embedded_postgres.drop_root import become, own, unprivileged_user
from broker.embedded_postgres.leftovers import StillRunning, stop_leftovers
from broker.telemetry.state_changes import StateChanges

# What StateChanges knows them by.
_POSTGRESQL = ("the embedded PostgreSQL", "running")
_START = ("the embedded PostgreSQL", "starting")

_USER, _DATABASE = "postgres", "broker"
_START_SECONDS = 60.0  # crash recovery reads at most max_wal_size of WAL
_STOP_SECONDS = 60.0  # for its last checkpoint; then it is ended without one and recovers at its next start
_CHECK_SECONDS, _RETRY_SECONDS = 0.2, 1.0
_MAX_SOCKET_PATH = 100  # bytes; the kernel's limit is 107
_LIST_CHARACTERS = frozenset(",\"'")  # mean something in unix_socket_directories, a list of quoted names

# What differs from PostgreSQL's defaults, and why.
CONFIGURATION = {
    "listen_addresses": "",  # a unix socket in a private directory; no port to protect
    "max_connections": "200",
    "shared_buffers": "256MB",  # the hot set: newest messages, cursors, attempts
    "effective_cache_size": "1GB",
    "work_mem": "8MB",
    "synchronous_commit": "on",  # an answer means "on disk" (A1)
    "wal_level": "minimal",  # nobody replicates from here
    "max_wal_senders": "0",
    "max_wal_size": "2GB",  # fewer checkpoints under load, and fewer full page images
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # message data hardly compresses; the processor is what is short
    "wal_buffers": "16MB",
    "jit": "off",  # compiling costs more than any hot statement runs
    "autovacuum_naptime": "10s",  # the hot tables turn over within seconds
    "random_page_cost": "1.1",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "logging_collector": "off",
    "log_checkpoints": "off",
    "io_method": "worker",
}


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Let no signal strike between fork and exec, when the child is still a copy of this program, nor before the
    child is known.  PostgreSQL sets the signals that it hears itself.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class ClusterError(Exception):
    """The embedded PostgreSQL cannot be used; the message is one line for the operator."""


class ClusterInUse(ClusterError):
    """Another broker runs on the data directory."""


class Cluster:
    """One data directory.  `lock` makes it ours, `open` starts PostgreSQL (and locks); `close` undoes both."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._data = self._directory / "postgres"
        self._log = self._directory / "postgres.log"
        self._user = unprivileged_user()
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False  # set by keep_running when it is cancelled, read by the thread that it started
        self._sockets = self._directory / "run"
        path = str(self._sockets / ".s.PGSQL.5432")
        if len(path.encode()) > _MAX_SOCKET_PATH or _LIST_CHARACTERS & set(path):
            name = sha256(str(self._directory).encode()).hexdigest()[:16]
            self._sockets = Path(tempfile.gettempdir()) / f"broker-{name}"

    @property
    def url(self) -> str:
        """How to connect."""
        return f"postgresql://{_USER}@/{_DATABASE}?host={quote(str(self._sockets), safe='')}"

    def exists(self) -> bool:
        """Whether the directory has a database."""
        return (self._data / "PG_VERSION").exists()

    def lock(self) -> None:
        """Make the directory, and make sure that no other broker uses it.  Raises ClusterError."""
        if self._lock is not None:
            return
        with self._naming_faults():
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._directory / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise ClusterInUse(f"A broker is running on {self._directory} already.") from None
            self._lock = lock

    def open(self) -> None:
        """Lock the directory, make the cluster if there is none, start it.  Raises ClusterError."""
        self.lock()
        with self._naming_faults():
            if not self.exists():
                self._initialise()
            version = (self._data / "PG_VERSION").read_text().strip()
            if version != str(MAJOR_VERSION):
                raise ClusterError(
                    f"{self._data} was made by PostgreSQL {version}; this broker embeds {MAJOR_VERSION}. "
                    "Dump it with the old version, or choose another --data-dir."
                )
            self._start()

    def close(self) -> None:
        """Stop PostgreSQL (it writes a checkpoint) and unlock the directory."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # "fast": connections are ended, not waited for
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)  # "immediate"
                self._process.wait()
        self._process = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    async def keep_running(self) -> None:
        """Start PostgreSQL again whenever its postmaster has died, until cancelled."""
        states = StateChanges()
        try:
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                if self._process is not None and self._process.poll() is not None:
                    how = f"it ended with {self._process.returncode}"
                    states.begins(*_POSTGRESQL, "the embedded PostgreSQL is started again", how)
                    try:
                        await asyncio.to_thread(self._start_again)
                    except ClusterError as error:
                        states.begins(*_START, "the embedded PostgreSQL does not start", str(error))
                        await asyncio.sleep(_RETRY_SECONDS)
                    else:
                        states.forget(*_START)
                        states.ends(*_POSTGRESQL, "the embedded PostgreSQL runs again")
                states.tick()
        finally:
            self._closing = True

    def _start_again(self) -> None:
        with self._naming_faults():  # such as backends of the one that died, which do not end yet
            self._start()

    @contextlib.contextmanager
    def _naming_faults(self) -> Iterator[None]:
        try:
            yield
        except StillRunning as error:
            raise ClusterError(str(error)) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ClusterError(f"The data directory {self._directory} cannot be used: {error}") from error

    def _run(self, program: str, *arguments: str) -> None:
        process: subprocess.Popen[str] | None = None
        try:
            with _signals_held():  # one that comes meanwhile ends this block
                process = subprocess.Popen(  # noqa: S603
                    [bin_directory() / program, *arguments],
                    preexec_fn=become(self._user),
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True,
                    cwd="/",
                    start_new_session=True,  # initdb has children of its own, which are to end with it
                )  # fmt: skip
            output, _ = process.communicate()
        except BaseException:
            if process is not None:
                with process, contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            raise ClusterError(f"{program} failed: {output.strip()}")

    def _initialise(self) -> None:
        if self._data.exists():  # an initdb that was cut short
            shutil.rmtree(self._data)
        making = self._directory / "postgres.new"
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(mode=0o700)
        own(making, self._user)
        self._run(
            "initdb", "-D", str(making), "-U", _USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
            "--no-instructions",
        )  # fmt: skip
        making.rename(self._data)

    def _start(self) -> None:
        stop_leftovers(self._data, self._sockets)
        self._sockets.mkdir(mode=0o700, exist_ok=True)
        own(self._sockets, self._user)
        self._sockets.chmod(0o700)  # whoever gets in is trusted; fails if somebody else made it
        settings = CONFIGURATION | {"unix_socket_directories": str(self._sockets)}
        with self._log.open("ab") as log, _signals_held():
            self._process = subprocess.Popen(  # noqa: S603
                [
                    bin_directory() / "postgres", "-D", str(self._data),
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                preexec_fn=become(self._user),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C is the broker's: PostgreSQL stops last
            )  # fmt: skip
        self._wait_until_ready(self._process)
        self._create_database()

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        pid_file = self._data / "postmaster.pid"
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline and not self._closing:
            if process.poll() is not None:
                last = self._log.read_text(errors="replace").strip().splitlines()[-3:]
                raise ClusterError(f"PostgreSQL ended at its start (log: {self._log}): {' / '.join(last)}")
            with contextlib.suppress(FileNotFoundError):
                lines = pid_file.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                    return
            time.sleep(0.02)
        raise ClusterError(f"PostgreSQL did not start within {_START_SECONDS:.0f} s (log: {self._log}).")

    def _create_database(self) -> None:
        marker = self._directory / "database-created"
        if marker.exists():
            return
        try:
            self._run("createdb", "-h", str(self._sockets), "-U", _USER, "--maintenance-db=postgres", _DATABASE)
        except ClusterError as error:
            if "already exists" not in str(error):  # made by a start that was killed before it left the marker
                raise
        marker.touch()
