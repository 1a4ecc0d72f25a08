"""Whether several projects use the process at the moment (M1)."""

from collections.abc import Callable, Hashable
from time import monotonic

LATELY_SECONDS = 1.0


class Tenants:
    """Counts all turns of a process, of whatever kind: turns that are under way slow each other down."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        """`clock`: in seconds."""
        self._clock = clock
        self.latest: Hashable = None
        self._changed_at: float | None = None  # when a turn was another project's than the one before it

    def note_turn(self, project: Hashable) -> None:
        """Notes the beginning of a project's turn; "": several projects share the turn."""
        if project and project != self.latest:
            if self.latest is not None:
                self._changed_at = self._clock()
            self.latest = project

    def is_contended(self) -> bool:
        """Whether turns of the last second were of more than one project."""
        return self._changed_at is not None and self._clock() - self._changed_at < LATELY_SECONDS
