"""Counts calls that changed nothing until they are written to the audit log.

Equal calls are counted for INTERVAL_SECONDS.  Failed calls are also sampled: the first SAMPLES different ones of a
caller in this interval get entries of their own, and all further ones share one entry with their number.  Callers
without a credential count as one caller, so that an anonymous client cannot fill the log by inventing names.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from broker.access.audit.audit_entry import Audited, AuditEntry

INTERVAL_SECONDS = 1.0  # within which equal calls are counted rather than written one by one
WINDOW = timedelta(minutes=1)  # of the samples
SAMPLES = 60  # different failed calls of a caller that are told apart in a window, in each process
MAX_DISTINCT = 1_000  # different calls in an interval, and callers in a window
OTHERS = "others"  # the method of calls that were not told apart


@dataclass(eq=False, slots=True)
class _Counted:
    times: int
    last: datetime


class NotedCalls:
    """The counts of one process.  Its memory is bounded whatever callers do."""

    def __init__(self) -> None:
        self._counted: dict[Audited, _Counted] = {}
        self._others: dict[Audited, _Counted] = {}  # by caller and result
        self._samples: dict[str, int] = {}  # in this window, by the caller's principal
        self._window_ends: datetime | None = None

    def add(self, what: Audited, now: datetime) -> None:
        if self._window_ends is None:
            self._window_ends = now + WINDOW
        counted = self._counted.get(what)
        if counted is not None:
            counted.times += 1
            counted.last = now
        elif len(self._counted) < MAX_DISTINCT and (what.code == "OK" or self._takes_sample(what.principal)):
            self._counted[what] = _Counted(1, now)
        else:
            self._add_to_others(what, now)

    def take(self, now: datetime, *, in_window: bool = False) -> list[AuditEntry]:
        """The entries to write now.  What was not told apart is among them at the end of a window, or if the
        broker stops (`in_window`).
        """
        entries = [AuditEntry(what, each.last, each.times) for what, each in self._counted.items()]
        self._counted = {}
        if self._window_ends is not None and (in_window or now >= self._window_ends):
            entries += [AuditEntry(what, each.last, each.times) for what, each in self._others.items()]
            self._others, self._samples, self._window_ends = {}, {}, None
        return entries

    def _takes_sample(self, principal: str) -> bool:
        taken = self._samples.get(principal, 0)
        if taken >= SAMPLES or (taken == 0 and len(self._samples) >= MAX_DISTINCT):
            return False
        self._samples[principal] = taken + 1
        return True

    def _add_to_others(self, what: Audited, now: datetime) -> None:
        summary = Audited(method=OTHERS, resource="", code=what.code, principal=what.principal)
        if summary not in self._others and len(self._others) >= MAX_DISTINCT:
            summary = Audited(method=OTHERS, resource="", code="UNKNOWN")
        counted = self._others.setdefault(summary, _Counted(0, now))
        counted.times += 1
        counted.last = now
