"""Log lines and counts of dead letters that were lost before they were resolved."""

import logging
from collections.abc import Mapping

from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import LOST_DEAD_LETTERS
from broker.observability.state_changes import StateChanges


class LostDeadLetters:
    """Counts them, and writes a line for each subscription that gave them up."""

    def __init__(self, states: StateChanges, counters: Counters) -> None:
        self._states = states
        self._counters = counters

    def report(self, lost: Mapping[str, int], why: str) -> None:
        """Reports lost dead letters by subscription; `why`: a few words."""
        for name, count in sorted(lost.items()):
            if count:
                self._counters.subscription(name)[LOST_DEAD_LETTERS] += count
                what = f"{count:,} dead letters of {name} are lost, and nobody had dealt with them: {why}"
                self._states.report("lost dead letters", what, level=logging.WARNING)
