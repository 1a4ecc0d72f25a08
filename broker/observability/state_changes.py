"""Logs the troubles of a process: when each begins, while it lasts, and when it ends.

There is one line when a trouble begins, one an hour while it lasts, and one at its end, however often it is noticed
meanwhile.

    fine ──begins──► trouble ──ends──► fine               its end is observed (a database, an endpoint)
      └───happens──► trouble ──no more for a while──┘     its end is not observed (calls are refused)

At most LINES_A_MINUTE lines are written a minute for each kind of trouble; further ones are counted and reported
together.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from broker.observability.log import extra, fields_of, seconds_text

REMIND_SECONDS = 3_600.0
QUIET_SECONDS = 30.0  # after which what only happens, and is not seen to end, is over
LINES_A_MINUTE = 20  # of each kind
TICK_SECONDS = 5.0  # how often `tick` is to be called, about

logger = logging.getLogger("broker.state")

_NO_FIELDS: Mapping[str, object] = {}


@dataclass(slots=True)
class _Trouble:
    """`count` is how often it happened; 0 of one whose end is seen."""

    what: str
    why: str
    began: float
    said_at: float
    count: int = 0
    last_at: float = 0.0
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class _Minute:
    """The written and suppressed lines of a kind since `began`."""

    began: float
    lines: int = 0
    unsaid: int = 0
    last: str = ""  # of those that were not written


class StateChanges:
    """The troubles of a process.  Call `tick` every few seconds: it reminds, sums up, and ends what is quiet.

    A trouble has a `kind`, in the plural ("push endpoints"), and a `name` within it.  `what` is a sentence without
    its full stop, `why` the reason in a few words.  `fields` are for programs (log.py): the fields of the resource
    with the full name `name` are added to them.
    """

    def __init__(self, *, ticks: Callable[[], float] = time.monotonic) -> None:
        """`ticks`: seconds, of a clock that only goes forward."""
        self._ticks = ticks
        self._troubles: dict[tuple[str, str], _Trouble] = {}
        self._minutes: dict[str, _Minute] = {}

    def lasts(self, kind: str, name: str = "") -> bool:
        """Whether there is such a trouble just now."""
        return (kind, name) in self._troubles

    def begins(
        self,
        kind: str,
        name: str,
        what: str,
        why: str,
        *,
        lasted: float = 0.0,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        request_id: bytes = b"",
        fields: Mapping[str, object] = _NO_FIELDS,
    ) -> None:
        """Begins a trouble, unless it has begun before.

        `lasted`: seconds, if it began a while ago; `error`: an exception to log with its traceback; `request_id`:
        of the request that shows it.
        """
        now = self._ticks()
        trouble = self._troubles.get((kind, name))
        if trouble is not None:
            trouble.what, trouble.why = what, why  # the reminder has the newest
            return
        fields = {**fields_of(name), **fields}
        self._troubles[kind, name] = _Trouble(what, why, now - lasted, now, fields=fields)
        if self._may_write(kind, now, f"{what}: {why}"):
            since = f", since {_moment(lasted)}" if lasted >= 1 else ""
            more = _with_event(fields, kind, "began", lasted, reason=why)
            logger.log(level, "%s%s: %s", what, since, why, exc_info=error, extra=extra(more, request_id))

    def ends(self, kind: str, name: str, what: str) -> None:
        """Ends a trouble, if it has begun."""
        trouble = self._troubles.pop((kind, name), None)
        if trouble is not None:
            now = self._ticks()
            if self._may_write(kind, now, what):
                lasted = now - trouble.began
                more = _with_event(trouble.fields, kind, "ended", lasted)
                logger.info("%s, after %s (since %s)", what, _span(lasted), _moment(lasted), extra=extra(more))

    def forget(self, kind: str, name: str) -> None:
        """Forgets a trouble whose subject is deleted, or belongs to another process now."""
        self._troubles.pop((kind, name), None)

    def happens(
        self,
        kind: str,
        name: str,
        what: str,
        why: str,
        *,
        level: int = logging.WARNING,
        error: BaseException | None = None,
        request_id: bytes = b"",
        fields: Mapping[str, object] = _NO_FIELDS,
    ) -> None:
        """Counts one more occurrence of a trouble.  It ends when it has not happened for QUIET_SECONDS."""
        trouble = self._troubles.get((kind, name))
        if trouble is None:
            self.begins(kind, name, what, why, level=level, error=error, request_id=request_id, fields=fields)
            trouble = self._troubles[kind, name]
        trouble.count += 1
        trouble.why = why
        trouble.last_at = self._ticks()

    def report(
        self,
        kind: str,
        what: str,
        *,
        level: int = logging.INFO,
        request_id: bytes = b"",
        fields: Mapping[str, object] = _NO_FIELDS,
    ) -> None:
        """Reports an event that neither lasts nor is a trouble."""
        if self._may_write(kind, self._ticks(), what):
            logger.log(level, "%s", what, extra=extra(_with_event(fields, kind), request_id))

    async def run_once(self) -> None:
        """`tick`, for a worker."""
        self.tick()

    def tick(self) -> None:
        """Say what is due."""
        now = self._ticks()
        for (kind, name), trouble in list(self._troubles.items()):
            if trouble.count and now - trouble.last_at >= QUIET_SECONDS:
                del self._troubles[kind, name]
                if self._may_write(kind, now, f"no more: {trouble.what}"):
                    lasted = trouble.last_at - trouble.began
                    times = "once" if trouble.count == 1 else f"{trouble.count:,} times in {_span(lasted)}"
                    more = _with_event(trouble.fields, kind, "ended", lasted, count=trouble.count)
                    logger.info(
                        "no more for %s: %s (%s)", _span(QUIET_SECONDS), trouble.what, times, extra=extra(more)
                    )
        self._remind(now)
        for kind, minute in list(self._minutes.items()):
            if now - minute.began >= 60:
                self._sum_up(kind, minute)
                del self._minutes[kind]

    def _remind(self, now: float) -> None:
        due: dict[str, list[_Trouble]] = {}
        for (kind, _), trouble in self._troubles.items():
            if now - trouble.said_at >= REMIND_SECONDS:
                trouble.said_at = now
                due.setdefault(kind, []).append(trouble)
        for kind, troubles in due.items():
            troubles.sort(key=lambda trouble: trouble.began)
            for trouble in troubles[:LINES_A_MINUTE]:
                lasted = now - trouble.began
                often = f", {trouble.count:,} times" if trouble.count else ""
                more = _with_event(
                    trouble.fields, kind, "lasts", lasted, reason=trouble.why, count=trouble.count or None
                )
                logger.warning(
                    "%s, for %s, since %s%s: %s",
                    trouble.what,
                    _span(lasted),
                    _moment(lasted),
                    often,
                    trouble.why,
                    extra=extra(more),
                )
            if len(troubles) > LINES_A_MINUTE:
                count = len(troubles) - LINES_A_MINUTE
                more = _with_event({}, kind, "lasts", count=count)
                logger.warning("%s: %s more are so, for an hour at least", kind, f"{count:,}", extra=extra(more))

    def _may_write(self, kind: str, now: float, line: str) -> bool:
        minute = self._minutes.get(kind)
        if minute is None or now - minute.began >= 60:
            if minute is not None:
                self._sum_up(kind, minute)
            minute = self._minutes[kind] = _Minute(now)
        if minute.lines < LINES_A_MINUTE:
            minute.lines += 1
            return True
        minute.unsaid += 1
        minute.last = line
        return False

    def _sum_up(self, kind: str, minute: _Minute) -> None:
        if minute.unsaid:
            now_so = sum(of == kind for of, _ in self._troubles)
            logger.warning(
                "%s: %s lines more in the last minute, the last of them: %s; %s have such trouble now",
                kind,
                f"{minute.unsaid:,}",
                minute.last,
                f"{now_so:,}",
                extra=extra(_with_event({}, kind, "summed_up", count=minute.unsaid)),
            )


def _with_event(
    fields: Mapping[str, object], kind: str, phase: str = "", lasted: float | None = None, **values: object
) -> Mapping[str, object]:
    """`event`: "push_endpoints.began", or "purged_topics" of what only happens."""
    name = kind.replace(" ", "_") + (f".{phase}" if phase else "")
    duration = seconds_text(lasted) if lasted else None
    return {"event": name} | fields_of(duration=duration, **values) | dict(fields)


def _moment(ago: float) -> str:
    """Formats the time so many seconds ago, by this machine's clock, as the log's own times are."""
    return f"{datetime.now(UTC) - timedelta(seconds=ago):%Y-%m-%dT%H:%M:%SZ}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
