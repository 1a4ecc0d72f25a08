"""Measures the steps of a start, for `broker serve --verbose`."""

import os
import time
from collections.abc import Callable
from pathlib import Path


class StartTimes:
    """Says after each step how long it took.

    Steps that run beside others, in processes of their own, are named with `beside`.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` prints a line."""
        self._say = say
        self._began = self._last = time.monotonic() - _age()
        self.done("the program is loaded")

    def done(self, what: str) -> None:
        """Logs a completed step, which began with the end of the last one."""
        now = time.monotonic()
        self._line(now - self._last, what)
        self._last = now

    def concurrent(self, seconds: float, what: str) -> None:
        """Logs a step that took so long beside the others."""
        self._line(seconds, f"({what})")

    def all_done(self) -> None:
        """Logs the end of the start."""
        self._line(time.monotonic() - self._began, "in all")

    def _line(self, seconds: float, what: str) -> None:
        self._say(f"    {seconds:6.2f} s  {what}")


def _age() -> float:
    """Returns for how many seconds this process has run; 0.0 if the system does not say."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(time.clock_gettime(time.CLOCK_BOOTTIME) - began, 0.0)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
