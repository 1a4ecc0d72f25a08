"""Where the time of one request goes, for the line of a slow one.  Noted only if slow requests are told."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields
from time import perf_counter


@dataclass(slots=True)
class Spent:
    """Seconds: until the body was there, in line for a turn or a connection, until the database had answered, and
    until there were messages.
    """

    body: float = 0.0
    turns: float = 0.0
    database: float = 0.0
    messages: float = 0.0

    def described(self, seconds: float) -> str:
        """Of so many seconds in all; `rest` is what the broker itself took, and the event loop."""
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        parts["rest"] = max(seconds - sum(parts.values()), 0.0)
        return ", ".join(f"{name} {value:.3f}" for name, value in parts.items())


SPENT: ContextVar[Spent | None] = ContextVar("spent", default=None)  # of the request of this task
_NOTHING = nullcontext()


def spending(kind: str) -> AbstractContextManager[None]:
    """Within the block the time of the request goes for this (a field of Spent)."""
    spent = SPENT.get()
    return _NOTHING if spent is None else _note(spent, kind)


@contextmanager
def _note(spent: Spent, kind: str) -> Iterator[None]:
    began = perf_counter()
    try:
        yield
    finally:
        setattr(spent, kind, getattr(spent, kind) + perf_counter() - began)
