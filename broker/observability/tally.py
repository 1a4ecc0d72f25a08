"""Counts frequent occurrences: one log line for each subject and minute, not for each occurrence."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

INTERVAL_SECONDS = 60.0
SUBJECTS = 20  # that have lines of their own in a minute; the others are counted together

logger = logging.getLogger("broker.tally")


class Tally:
    """Counts by subject and reason.  `tick` is to be called every second or so: it writes when a minute is over."""

    def __init__(self, what: str, *, ticks: Callable[[], float] = time.monotonic) -> None:
        """`what` is counted, in the plural: "dead letters".  `ticks`: seconds, of a clock that only goes on."""
        self._what = what
        self._ticks = ticks
        self._began = 0.0
        self._counts: dict[str, Counter[str]] = {}

    def add(self, subject: str, reasons: Mapping[str, int]) -> None:
        """Counts more of a subject ("of this subscription to that topic"), by reason."""
        if not self._counts:
            self._began = self._ticks()
        self._counts.setdefault(subject, Counter()).update(reasons)

    def tick(self, *, at_once: bool = False) -> None:
        """Write what there is, if a minute is over since the first of it, or `at_once`."""
        seconds = self._ticks() - self._began
        if not self._counts or (seconds < INTERVAL_SECONDS and not at_once):
            return
        counts, self._counts = self._counts, {}
        largest = sorted(counts.items(), key=lambda each: -each[1].total())
        for subject, reasons in largest[:SUBJECTS]:
            logger.info("%s", f"{self._line(reasons)} {subject} in {seconds:.0f} s{_by(reasons)}")
        if others := largest[SUBJECTS:]:
            total = sum((reasons for _, reasons in others), Counter[str]())
            logger.info("%s", f"{self._line(total)} of {len(others):,} others in {seconds:.0f} s{_by(total)}")

    def _line(self, reasons: Counter[str]) -> str:
        return f"{reasons.total():,} {self._what}"


def _by(reasons: Counter[str]) -> str:
    return ": " + ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common()) if reasons else ""
