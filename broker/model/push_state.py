"""The state of each push subscription's endpoint, as the broker stores and returns it (C6)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from broker.model.page import check_page_size, parse_page_token
from broker.model.refusals import refuse_nul

BreakerState = Literal["closed", "open", "half_open"]

MAX_KEPT_FAILURES = 100  # of a subscription
MAX_EXCERPT = 1_000  # characters of a response
WAIT_REPORTED_EVERY = timedelta(seconds=10)  # so often is a wait for slots written down again while it lasts
FAILING_SHOWN_AFTER = timedelta(seconds=10)  # a shorter run of failures is part of an endpoint's normal operation
LATE_SHOWN_FOR = timedelta(hours=1)  # since the last answer that came late
MAX_FAILING_MESSAGES = 20  # of a subscription that are reported by their ids at the same time


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureRun:
    """Consecutive push requests of a subscription that failed, with no success between them.

    `since`: when the first of them failed.  `status` (None: there was no answer) and `reason` are those of the last
    failure; the reason may be shown to anybody who may see the subscription.  `is_reported`: the run has lasted so
    long that it was logged and published as an event.
    """

    since: datetime
    requests: int
    status: int | None
    reason: str
    is_reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingMessage:
    """A message that keeps failing while the endpoint accepts others.  The fields are as in FailureRun."""

    message_id: str
    since: datetime
    failures: int
    status: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LateAnswers:
    """Requests that an endpoint accepted after their ack deadline, with no success in time between them.

    The last one was accepted at `last_at`, after `latency`.  Each message was pushed again meanwhile.
    """

    since: datetime
    last_at: datetime
    requests: int
    latency: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class PushState:
    """The state of a push subscription's endpoint, as the process that delivers to it last wrote it down.

    `paused_reason` is "" unless pushing is paused: until somebody resumes it (the endpoint answered 410), or until
    the broker may push there (`is_withheld`).
    `window` is how many requests may be outstanding.  `retry_at`: nothing is sent before (None: no such time).
    `waits_since`: since then it waits for slots that others hold (None: it does not); it has no `retry_at` then.
    `endpoint`: the URL that it is about (None: not told).
    `failures`: the failures since the last success (None: there are none, or a single message accounts for them).
    `late_answers` (None: the last success was in time).
    `failing_messages`: at most MAX_FAILING_MESSAGES that were reported and are neither delivered nor given up yet.
    """

    subscription_id: int
    breaker: BreakerState = "closed"
    changed_at: datetime
    consecutive_failures: int = 0
    window: int = 0
    outstanding_requests: int = 0
    retry_at: datetime | None = None
    waits_since: datetime | None = None
    paused_reason: str = ""
    endpoint: str | None = None
    failures: FailureRun | None = None
    failing_messages: tuple[FailingMessage, ...] = ()
    late_answers: LateAnswers | None = None

    def as_of(self, now: datetime) -> "PushState":
        """Drop what is no longer true: a retry time that has passed, late answers of long ago, and a wait for slots
        that nobody has confirmed lately, because the process that wrote it down may be gone.
        """
        has_passed = self.retry_at is not None and self.retry_at <= now
        is_stale = self.waits_since is not None and now - self.changed_at > 3 * WAIT_REPORTED_EVERY
        late = self.late_answers
        is_over = late is not None and now - late.last_at >= LATE_SHOWN_FOR
        if not (has_passed or is_stale or is_over):
            return self
        return replace(
            self,
            retry_at=None if has_passed else self.retry_at,
            waits_since=None if is_stale else self.waits_since,
            late_answers=None if is_over else late,
        )

    def late_answers_at(self, ack_deadline_seconds: int) -> LateAnswers | None:
        """Returns the late answers if the last one would be late with this ack deadline as well."""
        late = self.late_answers
        return late if late is not None and late.latency.total_seconds() > ack_deadline_seconds else None

    def is_failing(self, now: datetime) -> bool:
        """Whether the endpoint accepts nothing: its circuit breaker is not closed, or failures have gone on for a
        while without a success.
        """
        if self.breaker != "closed":
            return True
        run = self.failures
        return run is not None and (run.is_reported or now - run.since >= FAILING_SHOWN_AFTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PushFailure:
    """A failed attempt to deliver.

    `status` is None if there was no answer; `detail` is the error, or the beginning of the response (at most
    MAX_EXCERPT characters; longer ones are cut when they are stored).  `failure_id` is 0 until it is stored; later
    failures have greater ones.
    """

    subscription_id: int
    failed_at: datetime
    message_id: str
    delivery_attempt: int
    endpoint: str
    status: int | None
    latency: timedelta
    detail: str
    failure_id: int = 0


@dataclass(frozen=True, slots=True)
class PushTest:
    """The result of sending one message to see what the endpoint answers.

    The fields are as those of PushFailure.
    """

    endpoint: str
    delivered: bool
    status: int | None
    latency: timedelta
    detail: str


@dataclass(frozen=True, slots=True)
class PushFailurePage:
    """The parameters of a page: at most `size` failures, newest first, from before this one on.

    `before` None: from the newest on.  `message_id`: of this message alone ("": of all).
    """

    size: int
    before: int | None = None
    message_id: str = ""


def parse_push_failure_page(size: int, token: str, message_id: str = "") -> PushFailurePage:
    """Raises InvalidArgument for a negative size, a token of another list, or U+0000."""
    size = check_page_size(size)
    refuse_nul(message_id, "messageId")
    (before,) = parse_page_token(token, int) if token else (None,)
    return PushFailurePage(size, before, message_id)
