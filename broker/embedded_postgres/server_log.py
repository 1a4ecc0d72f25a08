"""Why PostgreSQL failed, from its own log."""

import os
import re
from pathlib import Path

_MOST_BYTES = 65_536  # that are read at once, from the end
_FAILURE = re.compile(r"\] (PANIC|FATAL):  (.+)$", re.MULTILINE)
# What a session is told while the server ends or starts, which is no reason for either.
_OF_SESSIONS = ("terminating connection", "the database system is", "connection to client lost")
_LAST_LINES = 3


class ServerLog:
    """The log of the embedded PostgreSQL, from the last start on; the broker never reads more than its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = 0  # of the last start
        self._read_to = 0  # by `new_crash`

    def mark(self) -> None:
        """PostgreSQL is about to start: what the log has by now is of earlier runs."""
        self._start = self._read_to = self._size()

    def reason(self) -> str:
        """The last failure since the start, else the last lines; "": there are none.

        A PANIC goes before a FATAL, which is what other processes say of it.
        """
        text = self._text(self._start)
        failures = [(level, what) for level, what in _FAILURE.findall(text) if not what.startswith(_OF_SESSIONS)]
        panics = [failure for failure in failures if failure[0] == "PANIC"]
        if failures:
            level, what = (panics or failures)[-1]
            return f"{level}: {what}"
        return " / ".join(text.strip().splitlines()[-_LAST_LINES:])

    def new_crash(self) -> str:
        """The last PANIC since this was called last ("": none)."""
        size = self._size()
        if size <= self._read_to:
            return ""
        panics = [what for level, what in _FAILURE.findall(self._text(self._read_to)) if level == "PANIC"]
        self._read_to = size
        return f"PANIC: {panics[-1]}" if panics else ""

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _text(self, start: int) -> str:
        try:
            with self._path.open("rb") as log:
                log.seek(max(start, self._size() - _MOST_BYTES))
                return log.read(_MOST_BYTES).decode(errors="replace")
        except OSError:
            return ""


def free_bytes(directory: Path) -> int | None:
    """What programs may still write to the file system of a directory; None: it cannot be told."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
