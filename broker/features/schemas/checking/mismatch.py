"""The error for a message that does not satisfy its schema."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

_SHOWN_PARTS = 20
_SHOWN = 200  # characters of a path


class Mismatch(Exception):
    """`str()` says where in the message and why."""


class TooLarge(Mismatch):
    """The message is too complex to be checked; another revision would not help."""


def all_pass(check: Callable[[bytes, str], None], messages: Iterable[bytes], encoding: str) -> bool:
    """Whether `check`, which raises Mismatch, takes all of them."""
    try:
        for data in messages:
            check(data, encoding)
    except Mismatch:
        return False
    return True


class Misfit(Exception):
    """A value within a message that is not of its type.  Callers on the way out say where it is."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self._path: list[str] = []

    def within(self, part: str) -> "Misfit":
        """The same, in this part of a larger value."""
        self._path.append(part)
        return self

    def said(self, whole: str) -> str:
        """Describes where the mismatch is, and why; `whole` names the message."""
        path = "".join(reversed(self._path[-_SHOWN_PARTS:]))
        return f"{whole}{path[:_SHOWN]} {self.reason}"


def check_items(items: Sequence[Any], check: Callable[[Any], None]) -> None:
    """Check each item of a value.  Raises Misfit, which says at which index."""
    index = 0
    try:
        for index, item in enumerate(items):  # noqa: B007
            check(item)
    except Misfit as misfit:
        raise misfit.within(f"[{index}]") from None
