"""Remembers origins in trouble, so that a new subscription, or a new push config, starts with their state (M1).

Only failures that any path of an origin would have count: refused connections, and requests without an answer.  An
answer of any status ends the trouble, because the answer to one path or one token says nothing about others.  Each
project has its own state, so that no project can make the endpoint of another look unhealthy.
"""

from dataclasses import dataclass

from broker.core.pushing.client.target import Origin

_MAX_KEPT = 10_000
_KEPT_SECONDS = 600.0  # after the last sign of trouble


@dataclass(slots=True)
class Trouble:
    """`failures` in a row, 0 while a request is only out for long; times of a monotonic clock."""

    failures: int
    last: float


class KnownOrigins:
    """The origins in trouble, by project.  It has no clock: times are passed in, in seconds."""

    def __init__(self) -> None:
        self._troubles: dict[tuple[str, Origin], Trouble] = {}  # the one with the newest sign at the end

    def failed(self, project: str, origin: Origin, now: float) -> None:
        """Records that a connection was refused, or that there was no answer in time."""
        self._note(project, origin, now).failures += 1

    def slow(self, project: str, origin: Origin, now: float) -> None:
        """Records that a request has been open for long: that counts as a sign before it has failed."""
        self._note(project, origin, now)

    def answered(self, project: str, origin: Origin) -> None:
        """Records an answer, whatever it was."""
        if self._troubles:
            self._troubles.pop((project, origin), None)

    def trouble(self, project: str, origin: Origin, now: float) -> Trouble | None:
        """Returns the trouble of an origin; None: none is known, or it is too long ago."""
        found = self._troubles.get((project, origin))
        return found if found is not None and now - found.last <= _KEPT_SECONDS else None

    def _note(self, project: str, origin: Origin, now: float) -> Trouble:
        key = project, origin
        trouble = self.trouble(project, origin, now) or Trouble(0, now)
        self._troubles.pop(key, None)
        if len(self._troubles) >= _MAX_KEPT:
            del self._troubles[next(iter(self._troubles))]
        trouble.last = now
        self._troubles[key] = trouble
        return trouble
