"""Finds the cause of PostgreSQL's failure in its log."""

import os
import re
from pathlib import Path

_MOST_BYTES = 1 << 20  # that are read at once; of a longer log only the end
_LINE = re.compile(
    r"\] (?:(?P<level>PANIC|FATAL):  (?P<what>.+)|LOG:  database system is (?P<ready>ready) to accept conn.*)$",
    re.MULTILINE,
)
# Messages to sessions while the server stops or starts, which do not explain why.
_OF_SESSIONS = ("terminating connection", "the database system is", "connection to client lost")
_LAST_LINES = 3


class ServerLog:
    """The log of the embedded PostgreSQL since its last start; what was read once is not read again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._failures: dict[str, str] = {}  # by level, the last of each since the server was ready
        self._panics = self._reported = 0
        self._last_lines: list[str] = []

    def mark(self) -> None:
        """PostgreSQL is about to start: what the log has by now is of earlier runs."""
        self._read_to = self._size()
        self._failures.clear()
        self._last_lines.clear()

    def reason(self) -> str:
        """The last failure, else the last lines; "": there are none.

        A PANIC goes before a FATAL, which is what other processes say of it.
        """
        self._read()
        for level in ("PANIC", "FATAL"):
            if level in self._failures:
                return f"{level}: {self._failures[level]}"
        return " / ".join(self._last_lines)

    def new_crash(self) -> str:
        """The last PANIC, if there was one since this was called last; else ""."""
        self._read()
        is_new, self._reported = self._panics > self._reported, self._panics
        return f"PANIC: {self._failures['PANIC']}" if is_new and "PANIC" in self._failures else ""

    def _read(self) -> None:
        size = self._size()
        if size <= self._read_to:
            return
        text = self._text(max(self._read_to, size - _MOST_BYTES), size)
        text = text[: text.rfind("\n") + 1]
        self._read_to = max(self._read_to, size - _MOST_BYTES) + len(text.encode(errors="surrogateescape"))
        self._last_lines = [*self._last_lines, *text.splitlines()][-_LAST_LINES:]
        for found in _LINE.finditer(text):
            level, what = found["level"], found["what"]
            if found["ready"]:
                self._failures.clear()
            elif not what.startswith(_OF_SESSIONS):
                self._failures[level] = what
                self._panics += level == "PANIC"

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def _text(self, start: int, end: int) -> str:
        try:
            with self._path.open("rb") as log:
                log.seek(start)
                return log.read(end - start).decode(errors="surrogateescape")
        except OSError:
            return ""


def free_bytes(directory: Path) -> int | None:
    """Returns how many bytes may still be written to the file system of a directory; None: it cannot be read."""
    try:
        status = os.statvfs(directory)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize
