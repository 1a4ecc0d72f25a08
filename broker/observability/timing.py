"""The timing of one request, for the log line of a slow one.  It is only measured if slow requests are logged."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, fields
from time import perf_counter


@dataclass(slots=True)
class Timing:
    """Seconds that a request waited for its body, for a turn or a connection, for the
    database, and for messages.
    """

    body: float = 0.0
    turns: float = 0.0
    database: float = 0.0
    messages: float = 0.0

    def described(self, seconds: float) -> str:
        """Describes how a request spent so many seconds.

        `rest` is the time of the broker itself, and of the event loop.
        """
        parts = {each.name: getattr(self, each.name) for each in fields(self)}
        parts["rest"] = max(seconds - sum(parts.values()), 0.0)
        return ", ".join(f"{name} {value:.3f}" for name, value in parts.items())


TIMING: ContextVar[Timing | None] = ContextVar("spent", default=None)  # of the request of this task
_NOTHING = nullcontext()


def timed(kind: str) -> AbstractContextManager[None]:
    """Returns a block whose time counts as this part of the request (a field of Timing)."""
    timing = TIMING.get()
    return _NOTHING if timing is None else _note(timing, kind)


@contextmanager
def _note(timing: Timing, kind: str) -> Iterator[None]:
    began = perf_counter()
    try:
        yield
    finally:
        setattr(timing, kind, getattr(timing, kind) + perf_counter() - began)
