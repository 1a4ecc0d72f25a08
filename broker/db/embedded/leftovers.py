"""Processes that an earlier broker left running on a data directory: a postmaster, or backends without one.

The process id in postmaster.pid proves nothing: after a reboot, or in a new container, it may belong to any
process, even of another PostgreSQL.  The working directory of PostgreSQL's processes is their data directory, by
which they are identified on Linux.
"""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

_FAST_SECONDS, _IMMEDIATE_SECONDS = 30.0, 5.0  # a checkpoint may take a while; without one, recovery is needed
_PROC = Path("/proc")
_PROC_SHOWS = (_PROC / "self").exists()


class StillRunning(Exception):
    """A process that uses the data directory does not end."""


def stop_leftovers(data: Path, sockets: Path) -> None:
    """End every PostgreSQL process on `data`, and wait until all are gone.  Raises StillRunning.

    `sockets` is the directory of its sockets; lock files there and in `data` that have become stale are removed.
    """
    for number, seconds in (
        (signal.SIGINT, _FAST_SECONDS),
        (signal.SIGQUIT, _IMMEDIATE_SECONDS),
        (signal.SIGKILL, _IMMEDIATE_SECONDS),
    ):
        deadline = time.monotonic() + seconds
        postmaster = _postmaster(data)
        running = _running_on(data)
        if postmaster in running:
            _signal(postmaster, number)  # it ends its backends itself
        elif number != signal.SIGINT:  # orphaned backends notice it themselves, unless they are stuck
            for pid in running:
                _signal(pid, number)
        while _running_on(data):
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        else:
            if _PROC_SHOWS:  # PostgreSQL refuses a stale lock file if its process number is in use again
                for lock_file in (data / "postmaster.pid", *sockets.glob(".s.PGSQL.*.lock")):
                    lock_file.unlink(missing_ok=True)
            return
    raise StillRunning(f"PostgreSQL processes {sorted(_running_on(data))} run on {data} and do not end")


def _postmaster(data: Path) -> int:
    """The process number in postmaster.pid, or 0."""
    try:
        return int((data / "postmaster.pid").read_text().splitlines()[0])
    except (FileNotFoundError, ValueError, IndexError):
        return 0


def _running_on(data: Path) -> set[int]:
    if not _PROC_SHOWS:
        return _postmaster_by_ps(data)
    directory = os.path.realpath(data)
    found = set()
    for entry in os.listdir(_PROC):
        with contextlib.suppress(OSError):  # it has ended, is a zombie, or belongs to another user
            here = entry.isdigit() and os.readlink(_PROC / entry / "cwd") == directory
            if here and (_PROC / entry / "comm").read_text().strip() == "postgres":
                found.add(int(entry))
    return found


def _postmaster_by_ps(data: Path) -> set[int]:
    pid = _postmaster(data)
    if not pid:
        return set()
    listed = subprocess.run(  # noqa: S603
        ["/bin/ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False
    )
    return {pid} if f"-D {data}" in listed.stdout else set()


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
