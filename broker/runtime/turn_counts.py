"""Who has turns, and who waits for them, by project (M1): of what a process shares because it can run out.

Who waits for whom is the two together: of a kind of turns, those whose waits grow wait for those who hold.
"""

from broker.telemetry.metrics.counters import Counters
from broker.telemetry.metrics.families import TURN_HELD, TURN_WAITS, TURNS


class TurnCounts:
    """Of turns of one kind (families.TURN_KINDS), in one process."""

    def __init__(self, counters: Counters, kind: str) -> None:
        self._counters = counters
        self._turns, self._waits, self._held = TURNS[kind], TURN_WAITS[kind], TURN_HELD[kind]

    def ended(self, project: str, *, waited: float, held: float) -> None:
        """A turn of a project ("projects/p") that it waited for, and had, so many seconds."""
        block = self._counters.project(project)
        block[self._turns] += 1
        block[self._waits] += int(waited * 1e6)
        block[self._held] += int(held * 1e6)

    def waited(self, project: str, seconds: float) -> None:
        """It waited for a turn, and got none, or that is counted apart."""
        self._counters.project(project)[self._waits] += int(seconds * 1e6)
