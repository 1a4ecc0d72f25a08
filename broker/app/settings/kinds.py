"""The kinds of values that settings accept.

Each kind reads a value from text, describes the allowed values in words, and has a placeholder for `--help`.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

# Variables that only commands which call a broker read (client/connection.py): neither settings nor misspelled
# ones. BROKER_PROJECT is both.
CLIENT_VARIABLES = frozenset({"BROKER_URL", "BROKER_CREDENTIALS", "BROKER_CONTEXT"})


class Kind(Protocol):
    """`allowed` completes the sentence "the setting must be …"."""

    @property
    def allowed(self) -> str: ...

    @property
    def placeholder(self) -> str: ...

    def read(self, text: str) -> Any:
        """Raises ValueError; its message, if there is one, says more than `allowed` does."""
        ...


N = TypeVar("N", int, float)


def _bounded(read: Callable[[str], N], text: str, least: N, most: N) -> N:
    try:
        number = read(text)
    except ValueError:
        raise ValueError from None  # the original message is Python's
    if not least <= number <= most:  # so that NaN is refused
        raise ValueError
    return number


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds, both included."""

    least: int
    most: int
    placeholder: str = "N"

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def read(self, text: str) -> int:
        return _bounded(int, text, self.least, self.most)


@dataclass(frozen=True, slots=True)
class WholeOrAuto(Whole):
    """The same, or `auto`: one for each processor that this process may use."""

    placeholder: str = "N|auto"

    @property
    def allowed(self) -> str:
        return f"a whole number from {self.least} to {self.most}, or auto"

    def read(self, text: str) -> int:
        if text.lower() == "auto":
            return min(processors(), self.most)
        return Whole.read(self, text)


def processors(limit: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Returns how many processors this process may use: by its affinity, and by its container's limit.

    `limit` is a file of cgroup v2.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, _, period = limit.read_text().partition(" ")
        return max(1, min(count, -(-int(quota) // int(period))))
    except (OSError, ValueError, ZeroDivisionError):  # no limit: `max 100000`
        return count


@dataclass(frozen=True, slots=True)
class Seconds:
    """A time in seconds within bounds, both included; fractions are allowed."""

    least: float
    most: float
    placeholder: str = "SECONDS"

    @property
    def allowed(self) -> str:
        return f"a number of seconds from {self.least:g} to {self.most:g}"

    def read(self, text: str) -> float:
        return _bounded(float, text, self.least, self.most)


@dataclass(frozen=True, slots=True)
class OneOf:
    """A choice between words, in any case."""

    words: tuple[str, ...]

    @property
    def allowed(self) -> str:
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    @property
    def placeholder(self) -> str:
        return "|".join(self.words)

    def read(self, text: str) -> str:
        if text.lower() not in self.words:
            raise ValueError
        return text.lower()


@dataclass(frozen=True, slots=True)
class Text:
    """A text that is not empty, unless it `may_be_empty`.

    `check` raises ValueError for a text that is not allowed.
    """

    allowed: str
    placeholder: str
    check: Callable[[str], object] | None = None
    may_be_empty: bool = True

    def read(self, text: str) -> str:
        if not text and not self.may_be_empty:
            raise ValueError
        if text and self.check is not None:
            self.check(text)
        return text


@dataclass(frozen=True, slots=True)
class Several(Text):
    """Texts with commas between them; the option may be given several times, and each adds to them."""


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch, on or off; the option alone means on."""

    placeholder: str = "true|false"
    allowed: str = "true or false"

    def read(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise ValueError
        return text.lower() == "true"
