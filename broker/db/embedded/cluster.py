"""The embedded PostgreSQL: one cluster in a data directory, run as a child of the broker.

    no directory ──initdb──► stopped ──start──► running ──stop──► stopped
                                 ▲                  │ its postmaster dies: keep_running starts it again
                                 └──────────────────┘

The data directory is locked (flock) while a broker uses it; the kernel releases the lock however the broker ends.
Processes that have outlived a broker or a postmaster (kill -9) are ended before a new postmaster starts.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from broker.db.embedded import roles
from broker.db.embedded.binaries import MAJOR_VERSION, NotInstalled, bin_directory
from broker.db.embedded.leftovers import StillRunning, stop_leftovers
from broker.db.embedded.server_log import ServerLog, free_bytes
from broker.db.embedded.sockets import make_socket_directory, remove_socket_directory, socket_directory
from broker.db.embedded.system_user import (
    handed_over,
    make_private_directory,
    own_name,
    running_as,
    unprivileged_user,
    write_private_file,
)
from broker.observability.state_changes import StateChanges

# The keys of StateChanges.
_POSTGRESQL = ("the embedded PostgreSQL", "running")
_START = ("the embedded PostgreSQL", "starting")

_START_SECONDS = 60.0  # crash recovery reads at most max_wal_size of WAL
_STOP_SECONDS = 60.0  # for its last checkpoint; then it is ended without one and recovers at its next start
_CHECK_SECONDS, _RETRY_SECONDS, _ASK_SECONDS = 0.2, 1.0, 3.0
_INSPECT_SECONDS, _STUCK_SECONDS, _IMMEDIATE_SECONDS = 1.0, 10.0, 5.0
_FULL_SECONDS = 60.0  # a disk that was full within this time may be why PostgreSQL failed
_CHECKPOINT_SECONDS = 60  # for one on demand; the next one continues it
_WAL_SHARE = 8  # of a small file system WAL takes an eighth at most; max_wal_size must be twice a segment at least
_LEAST_WAL_BYTES, _MOST_WAL_BYTES = 64 << 20, 2 << 30

_SEGMENT_BYTES = 16 << 20  # of a WAL file, which it creates before it needs it

_PORT = "5432"  # part of the socket's name; set on both sides, because PGPORT could differ

# Settings that differ from PostgreSQL's defaults, and why.
CONFIGURATION = {
    "port": _PORT,
    "listen_addresses": "",  # a unix socket in a private directory; no port to protect
    "max_connections": "200",
    "shared_buffers": "256MB",  # the hot set: newest messages, cursors, attempts
    "effective_cache_size": "1GB",
    "work_mem": "8MB",
    "synchronous_commit": "on",  # an answer means "on disk" (A1)
    "wal_level": "minimal",  # there are no replicas
    "max_wal_senders": "0",
    "checkpoint_timeout": "15min",
    "wal_compression": "off",  # message data hardly compresses, and processor time is scarce
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


_PROC = Path("/proc")
# A running server has the first, a recovering one the second.
_ONE_OF = (b"postgres: walwriter", b"postgres: startup")


def is_up_or_recovers(postmaster: int) -> bool:
    """Whether a postmaster still does its work, by the processes that it has.  True where it cannot be told.

    A postmaster whose recovery fails for want of disk space sometimes neither ends nor tries again: PostgreSQL 18
    has been seen to refuse connections for ever then, with no startup process.  It never serves again by itself.
    """
    try:
        children = (_PROC / str(postmaster) / "task" / str(postmaster) / "children").read_text().split()
    except OSError:  # not Linux, or the postmaster has ended
        return True
    for child in children:
        with contextlib.suppress(OSError):  # it has ended since
            if (_PROC / child / "cmdline").read_bytes().startswith(_ONE_OF):
                return True
    return False


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
    """The data directory is in use by another broker."""


class Cluster:
    """The PostgreSQL cluster of a data directory.

    `lock` reserves the directory for this process, `open` starts PostgreSQL (and locks); `close` undoes both.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory.absolute()
        self._data = self._directory / "postgres"
        self._log = self._directory / "postgres.log"
        self._failures = ServerLog(self._log)
        self._user = unprivileged_user()
        self._lock: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_down = False  # from the end of a postmaster until another one is ready
        self._check_at, self._full_at = 0.0, float("-inf")
        self._stuck_since: float | None = None
        self._closing = False  # set by keep_running when it is cancelled, read by the thread that it started

    @property
    def url(self) -> str:
        """The URL with which the broker connects.

        Raises OSError for a directory with a very long path that was never opened.
        """
        return self._url(roles.ROLE, roles.DATABASE)

    @property
    def maintenance_url(self) -> str:
        """The URL with which its owner connects as the superuser, to a database that always exists.

        Raises OSError as `url` does.
        """
        return self._url(roles.SUPERUSER, "postgres")

    @property
    def superuser_url(self) -> str:
        """The same, to the database of the broker.  Raises OSError likewise."""
        return self._url(roles.SUPERUSER, roles.DATABASE)

    def _url(self, role: str, database: str) -> str:
        sockets = quote(str(socket_directory(self._directory)), safe="")
        return f"postgresql://{role}@/{database}?host={sockets}&port={_PORT}"

    def exists(self) -> bool:
        """Whether the directory has a database."""
        return (self._data / "PG_VERSION").exists()

    def lock(self) -> None:
        """Make the directory, and make sure that no other broker uses it.  Raises ClusterError."""
        if self._lock is not None:
            return
        with self._naming_faults():
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._directory / "broker.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                raise ClusterInUse(f"A broker is running on {self._directory} already.") from None
            self._lock = lock

    def open(self, done: Callable[[str], None] = lambda _step: None) -> None:
        """Lock the directory, make the cluster if there is none, start it.  Raises ClusterError.

        `done` hears of each step that is over.
        """
        self.lock()
        with self._naming_faults():
            if not self.exists():
                self._initialise()
                done("PostgreSQL's data directory is made")
            version = (self._data / "PG_VERSION").read_text().strip()
            if version != str(MAJOR_VERSION):
                raise ClusterError(
                    f"{self._data} was made by PostgreSQL {version}; this broker embeds {MAJOR_VERSION}. "
                    "Dump it with the old version, or choose another --data-dir."
                )
            self._start()
            done("PostgreSQL is started")
            self._prepare()
            done("its role and database are there")

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
            remove_socket_directory(self._directory)
            os.close(self._lock)
            self._lock = None

    @property
    def directory(self) -> Path:
        """The data directory."""
        return self._directory

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that WAL before it gives its space back.  Raises ClusterError."""
        with self._naming_faults():
            self._run_as_superuser(f"SET statement_timeout = '{_CHECKPOINT_SECONDS}s'; CHECKPOINT")

    async def keep_running(self, outage: Callable[[str], None] = lambda _why: None) -> None:
        """Start PostgreSQL again whenever its postmaster has died or is stuck, until cancelled.

        `outage(why)` is called while it does not run, and with "" once it runs again.
        """
        states = StateChanges()
        try:
            while True:
                await asyncio.sleep(_CHECK_SECONDS)
                self._check_disk()
                if self._process is not None and (self._is_down or self._process.poll() is not None):
                    await self._restart(self._process, states, outage)
                elif crash := self._failures.new_crash():  # one of its processes crashed; it restarts all of them
                    states.happens("the embedded PostgreSQL", "crashes", "the embedded PostgreSQL recovers", crash)
                elif self._process is not None and self._is_stuck(self._process.pid):
                    what = "the embedded PostgreSQL does not recover, and is ended"
                    states.report("the embedded PostgreSQL", f"{what}: {self._why()}", level=logging.WARNING)
                    await asyncio.to_thread(self._end, self._process)
                states.tick()
        finally:
            self._closing = True

    async def _restart(
        self, process: subprocess.Popen[bytes], states: StateChanges, outage: Callable[[str], None]
    ) -> None:
        """Try once.  `process`: the one that has ended, or is not ready in time."""
        if not self._is_down:
            self._is_down = True
            why = self._how_it_ended(process.returncode)
            states.begins(*_POSTGRESQL, "the embedded PostgreSQL is started again", why)
            outage(why)
        try:
            await asyncio.to_thread(self._start_again)
        except ClusterError as error:
            states.begins(*_START, "the embedded PostgreSQL does not start", str(error))
            outage(str(error))
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            self._is_down = False
            states.forget(*_START)
            states.ends(*_POSTGRESQL, "the embedded PostgreSQL runs again")
            outage("")

    def _is_stuck(self, postmaster: int) -> bool:
        """Whether it has been so for a while."""
        now = time.monotonic()
        if now < self._check_at:
            return False
        self._check_at = now + _INSPECT_SECONDS
        if is_up_or_recovers(postmaster):
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since > _STUCK_SECONDS:
            self._stuck_since = None
            return True
        return False

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGQUIT)  # "immediate": it recovers at its next start
        try:
            process.wait(_IMMEDIATE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _how_it_ended(self, code: int) -> str:
        how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        return "; ".join(filter(None, (how, self._why())))

    def _why(self) -> str:
        """Returns the reason from PostgreSQL's log, and whether the disk was full.

        If it was, the log may have had no room for a reason.
        """
        self._check_disk()
        full = ""
        if time.monotonic() - self._full_at < _FULL_SECONDS:
            full = f"the file system of {self._directory} is full, or was a moment ago"
        return "; ".join(filter(None, (self._failures.reason(), full))) or "its log has no reason"

    def _check_disk(self) -> None:
        free = free_bytes(self._directory)
        if free is not None and free < _SEGMENT_BYTES:
            self._full_at = time.monotonic()

    def _start_again(self) -> None:
        with self._naming_faults():  # such as backends of the previous postmaster that have not ended yet
            if self._process is not None and self._process.poll() is None:
                self._wait_until_ready(self._process)  # it was not ready in time
            else:
                self._start()

    @contextlib.contextmanager
    def _naming_faults(self) -> Iterator[None]:
        try:
            yield
        except (StillRunning, NotInstalled) as error:
            raise ClusterError(str(error)) from error
        except (OSError, subprocess.SubprocessError) as error:
            raise ClusterError(f"The data directory {self._directory} cannot be used: {error}") from error

    def _run(self, program: str, *arguments: str, text: str = "", **options: Any) -> None:
        """Run one of PostgreSQL's programs to its end, with `text` as its input."""
        process: subprocess.Popen[str] | None = None
        try:
            with _signals_held():  # a signal that arrives meanwhile ends this block
                process = subprocess.Popen(  # noqa: S603
                    [bin_directory(self._user) / program, *arguments],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,  # initdb has children, which must end with it
                    **options,
                )  # fmt: skip
            output, _ = process.communicate(text)
        except BaseException:
            if process is not None:
                with process, contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            raise
        if process.returncode:
            raise ClusterError(f"{program} failed: {output.strip()}")

    def _initialise(self) -> None:
        if self._data.exists():  # an interrupted initdb
            shutil.rmtree(self._data)
        making = self._directory / "postgres.new"
        shutil.rmtree(making, ignore_errors=True)
        make_private_directory(making, self._user)
        own_name()  # initdb's error for a user without a name is less clear
        with handed_over(self._user, making) as ([shown], descriptors):
            self._run(
                "initdb", "-D", shown, "-U", roles.SUPERUSER, "--auth-local=peer", "--auth-host=reject",
                "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions",
                pass_fds=descriptors, **running_as(self._user),
            )  # fmt: skip
        making.rename(self._data)

    def _start(self) -> None:
        access, users = self._directory / "pg_hba.conf", self._directory / "pg_ident.conf"
        sockets = make_socket_directory(self._directory, self._user)
        stop_leftovers(self._data, sockets)
        write_private_file(access, roles.ACCESS, self._user)
        write_private_file(users, roles.user_map(own_name()), self._user)
        program = bin_directory(self._user) / "postgres"
        with (
            self._open_log() as log,
            handed_over(self._user, self._data, sockets, access, users) as (shown, passed),
        ):
            paths = dict(zip(("unix_socket_directories", "hba_file", "ident_file"), shown[1:], strict=True))
            settings = CONFIGURATION | {"max_wal_size": f"{self._wal_bytes() >> 20}MB"} | paths
            self._failures.mark()
            with _signals_held():
                self._process = subprocess.Popen(  # noqa: S603
                    [program, "-D", shown[0], *(f"--{name}={value}" for name, value in settings.items())],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                    start_new_session=True,  # Ctrl-C is the broker's: PostgreSQL stops last
                    pass_fds=passed,
                    **running_as(self._user),
                )  # fmt: skip
        self._wait_until_ready(self._process)

    def _wal_bytes(self) -> int:
        """Returns how many bytes WAL may take.

        The more it is, the fewer checkpoints there are, and full page images after these.  On a small file system
        it must leave room for the tables.
        """
        status = os.statvfs(self._directory)
        total = status.f_blocks * status.f_frsize
        return max(_LEAST_WAL_BYTES, min(total // _WAL_SHARE, _MOST_WAL_BYTES))

    def _open_log(self) -> IO[bytes]:
        """Statements that failed are in it, so it is its owner's alone."""
        return open(self._log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600))

    def _prepare(self) -> None:
        """See to roles, database and owners."""
        self._run_as_superuser(roles.PREPARATION)

    def _run_as_superuser(self, statements: str) -> None:
        self._run(
            "psql", "--no-psqlrc", "--quiet", "--tuples-only", "--set=ON_ERROR_STOP=1",
            f"--dbname={self.maintenance_url}",
            text=statements, **running_as(None),
        )  # fmt: skip

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        pid_file = self._data / "postmaster.pid"
        deadline = time.monotonic() + _START_SECONDS
        ask_at = time.monotonic() + _ASK_SECONDS
        while time.monotonic() < deadline and not self._closing:
            if process.poll() is not None:
                raise ClusterError(f"PostgreSQL ended at its start (log: {self._log}): {self._why()}")
            with contextlib.suppress(FileNotFoundError):
                lines = pid_file.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(process.pid) and lines[7].strip() == "ready":
                    return
            if time.monotonic() >= ask_at:  # on a full disk that file may stay without its last line
                with contextlib.suppress(ClusterError):
                    self._run_as_superuser("SELECT 1")
                    return
                ask_at = time.monotonic() + _ASK_SECONDS
            time.sleep(0.02)
        raise ClusterError(f"PostgreSQL did not start within {_START_SECONDS:.0f} s (log: {self._log}).")
