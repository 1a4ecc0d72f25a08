"""Counts the turns of projects, and the time for which they wait for turns and hold them (M1).

The counts show which projects wait for which: for each kind of turns, the projects whose waits grow wait for the
projects that hold the turns.
"""

from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import TURN_HELD, TURN_WAITS, TURNS


class TurnCounts:
    """Counts the turns of one kind (families.TURN_KINDS) in one process."""

    def __init__(self, counters: Counters, kind: str) -> None:
        self._counters = counters
        self._turns, self._waits, self._held = TURNS[kind], TURN_WAITS[kind], TURN_HELD[kind]

    def ended(self, project: str, *, waited: float, held: float) -> None:
        """Count a turn of a project ("projects/p"), with the seconds for which it was waited for and held."""
        block = self._counters.project(project)
        block[self._turns] += 1
        block[self._waits] += int(waited * 1e6)
        block[self._held] += int(held * 1e6)

    def waited(self, project: str, seconds: float) -> None:
        """Count a wait that ended without a turn, or whose turn is counted apart."""
        self._counters.project(project)[self._waits] += int(seconds * 1e6)
