"""Decides which failures of a push subscription are reported.  Pure: times are parameters.

A message that failed, and failed again after the endpoint had accepted others, is *singled out*: its answers say
little about the endpoint.  So is a message whose request failed after the endpoint had accepted another one while
it was outstanding.  Failures count for the endpoint, unless only singled-out messages account for them: several
whose status rejects the message, or a single one, whatever its status.

    success ──failure──► run of failures ──`after`──► reported ──success──► recovered
       ▲                        │                        │
       └────────success─────────┴───nothing is left──────┘

Messages that were acknowledged, discarded or purged elsewhere, skipped by a seek, or expired neither fail nor
succeed again.  So a failing message ends when nothing more is reported of it, and a run of failures ends when
nothing is left to send.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from broker.core.pushing.health.fault import fault_of
from broker.model.push_state import MAX_FAILING_MESSAGES, FailingMessage, FailureRun, PushState

MAX_TRACKED = 100  # failed messages of a subscription that are remembered; the latest ones
GONE_AFTER = timedelta(minutes=2)  # a message that is not retried for so long while the endpoint works is gone
_LONGEST_BACKOFF = timedelta(minutes=10)  # of a message whose next attempt another process has set


class Failed(NamedTuple):
    """A message of a request that has failed.  It is not sent again before `retry_at`, or, if None, never."""

    message_id: str
    retry_at: datetime | None


@dataclass(slots=True)
class _Tracked:
    """A message that has failed and is to be tried again.  `successes`: of the endpoint, by its last failure."""

    message: FailingMessage
    successes: int
    retry_at: datetime | None = None
    is_singled_out: bool = False
    is_reported: bool = False


class FailingWatch:
    """The failures of one subscription since the last success, and the messages that keep failing."""

    __slots__ = (
        "_after",
        "_idle_since",
        "_last_failure_at",
        "_last_success_at",
        "_sole",
        "_successes",
        "_tracked",
        "run",
    )

    def __init__(self, after: timedelta, known: PushState | None = None) -> None:
        """`after`: how long failures must go on to be reported.  `known`: what another process left behind."""
        self._after = after
        self._successes = 0
        self._sole: str | None = None  # the singled-out message that has failed since the last success
        self.run = None if known is None else known.failures
        self._last_failure_at: datetime | None = None
        self._idle_since: datetime | None = None  # since when it fails, may send, and has no messages
        self._last_success_at: datetime | None = None
        messages = () if known is None else known.failing_messages
        self._tracked = {  # the one that failed last at the end
            message.message_id: _Tracked(message, 0, is_singled_out=True, is_reported=True) for message in messages
        }

    @property
    def failing_messages(self) -> tuple[FailingMessage, ...]:
        """The messages that were reported and are not over, the one that has failed longest first."""
        reported = [tracked.message for tracked in self._tracked.values() if tracked.is_reported]
        return tuple(sorted(reported, key=lambda message: message.since))

    @property
    def retry_at(self) -> datetime | None:
        """The time at which the first of the messages that have failed is due again, while the endpoint fails.

        None: there is none.
        """
        if self.run is None:
            return None
        return min((each.retry_at for each in self._tracked.values() if each.retry_at is not None), default=None)

    def failed(
        self,
        messages: Sequence[Failed],
        *,
        began: datetime,
        now: datetime,
        status: int | None,
        reason: str,
    ) -> list[str]:
        """A request that was sent when it `began` has failed with all its messages.

        Returns the ids of reported messages that are dead-lettered.
        """
        overtaken = self._last_success_at is not None and began < self._last_success_at
        since = began if self._last_success_at is None else max(began, self._last_success_at)
        ids = [message.message_id for message in messages]
        ended: list[str] = []
        singled_out = True
        for message_id, retry_at in messages:
            tracked = self._note(message_id, since, status, reason)
            tracked.retry_at = retry_at
            tracked.is_singled_out |= overtaken
            singled_out &= tracked.is_singled_out
            if retry_at is None:
                del self._tracked[message_id]
                if tracked.is_reported:
                    ended.append(message_id)
        self._last_failure_at = now
        if self.run is not None:
            self.run = replace(self.run, requests=self.run.requests + 1, status=status, reason=reason)
        elif singled_out and (_rejects_message(status) or (len(ids) == 1 and self._sole in (None, ids[0]))):
            self._sole = ids[0]
            self._report_messages(ids, now)
        else:
            self.run = FailureRun(since=since, requests=1, status=status, reason=reason)
        return ended

    def succeeded(self, message_ids: Iterable[str], now: datetime) -> list[str]:
        """The endpoint took these.  Returns the ids of those that were reported as failing."""
        self._successes += 1
        self._last_success_at = now
        self.run = self._sole = None
        if not self._tracked:
            return []
        done = [(message_id, self._tracked.pop(message_id, None)) for message_id in message_ids]
        return [message_id for message_id, tracked in done if tracked is not None and tracked.is_reported]

    def forget_gone(self, now: datetime, held: Collection[str]) -> list[str]:
        """Forgets reported messages that are no longer tried.  Returns their ids.

        `held`: messages that this process has, which it may send late.  While the endpoint fails, being late says
        nothing.
        """
        if self.run is not None:
            return []
        gone: list[str] = []
        for message_id, tracked in self._tracked.items():
            if not tracked.is_reported or message_id in held:
                continue
            if tracked.retry_at is None:
                tracked.retry_at = now + _LONGEST_BACKOFF
            if now - tracked.retry_at >= GONE_AFTER:
                gone.append(message_id)
        for message_id in gone:
            del self._tracked[message_id]
        return gone

    def ends_idle(self, now: datetime, *, is_idle: bool) -> bool:
        """Ends a run if nothing has been left to send for GONE_AFTER, and returns whether it has ended.

        `is_idle`: the endpoint could be sent something now, and this process has nothing for it.
        """
        if (
            self.run is None
            or not is_idle
            or any(each.retry_at and each.retry_at > now for each in self._tracked.values())
        ):
            self._idle_since = None
            return False
        if self._idle_since is None:  # messages that another process has sent may become due this much later
            self._idle_since = now + (_LONGEST_BACKOFF if self._last_failure_at is None else timedelta(0))
        if now - self._idle_since < GONE_AFTER:
            return False
        self.run = self._sole = self._idle_since = None
        return True

    def is_due(self, now: datetime) -> bool:
        """Whether the endpoint is to be reported as failing now.

        If all messages that failed are dead-lettered, nothing is known to be delayed: then only another failure,
        later than `after`, shows that the endpoint still fails.
        """
        run = self.run
        if run is None or run.is_reported or now - run.since < self._after:
            return False
        last = self._last_failure_at or run.since
        return bool(self._tracked) or last - run.since >= self._after

    def report(self) -> None:
        """Marks the endpoint as reported."""
        if self.run is not None:
            self.run = replace(self.run, is_reported=True)

    def _note(self, message_id: str, since: datetime, status: int | None, reason: str) -> _Tracked:
        tracked = self._tracked.pop(message_id, None)
        if tracked is None:
            self._drop_the_oldest()
            first = FailingMessage(message_id=message_id, since=since, failures=1, status=status, reason=reason)
            tracked = _Tracked(first, self._successes)
        else:
            failures = tracked.message.failures + 1
            tracked.message = replace(tracked.message, failures=failures, status=status, reason=reason)
            tracked.is_singled_out |= tracked.successes < self._successes
            tracked.successes = self._successes
        self._tracked[message_id] = tracked
        return tracked

    def _drop_the_oldest(self) -> None:
        if len(self._tracked) >= MAX_TRACKED:
            unreported = (message_id for message_id, each in self._tracked.items() if not each.is_reported)
            del self._tracked[next(unreported)]  # MAX_FAILING_MESSAGES is less

    def _report_messages(self, message_ids: Iterable[str], now: datetime) -> None:
        for message_id in message_ids:
            tracked = self._tracked.get(message_id)
            if tracked is not None and now - tracked.message.since >= self._after:
                tracked.is_reported |= len(self.failing_messages) < MAX_FAILING_MESSAGES


def _rejects_message(status: int | None) -> bool:
    """Whether the status rejects the message, as 400 and 422 do, and a success that names messages as failed."""
    return status is not None and (200 <= status < 300 or not fault_of(status).is_of_endpoint)
