"""Whether another request to a push subscription's endpoint may start now (A8, C3, C6).  Pure: times are given."""

from dataclasses import dataclass

from broker.domain.push_config import PushOptions
from broker.domain.push_state import BreakerState
from broker.runtime.jitter import Jitter, retry_jitter
from broker.workers.push.growth_watch import GrowthWatch
from broker.workers.push.token_bucket import TokenBucket

# The first three are Google's (Push subscriptions, delivery rate): the window starts single-digit, grows
# exponentially to 3,000 and linearly from there, and falls back to 3,000 when the mean latency exceeds a second.
FIRST_WINDOW = 8
LINEAR_ABOVE = 3_000
SLOW_LATENCY = 1.0  # seconds; an answer that takes longer is slow
MAX_WINDOW = 10_000  # ours: sockets that one process can have open to one endpoint with sense

# Google's push backoff: 100 ms to 60 s, not configurable.
MIN_BACKOFF = 0.1  # seconds
MAX_BACKOFF = 60.0
# A success halves the backoff above this and takes MIN_BACKOFF off below: so an endpoint that refuses one of five
# messages gets one about every 500 ms (as Google's documentation has it), one that refuses all gets one a minute,
# and one that then recovers has its window again after 24 successes, in somewhat over two minutes.
_HALVED_ABOVE = 2.0

MAX_RETRY_AFTER = 3_600.0  # seconds; an endpoint that asks for more is tried again after this
_LATENCY_WEIGHT = 1 / 8  # of the newest request in the mean


@dataclass(slots=True, eq=False)
class Attempt:
    """A request that started: the room that it takes until it succeeded, failed or was abandoned.

    `number` counts the requests of the endpoint; `began` is in seconds.
    """

    number: int
    began: float
    ended: bool = False


class EndpointHealth:
    """How an endpoint does, and therefore how many requests it may get.

    The circuit breaker, and what `room` is in each state (in all of them 0 until a Retry-After is over, and no
    more than the rate allows):

        closed ◄────────┐  what is free of the window; while backing off one request at a time, spaced
           │ failure_threshold failures in a row
           ▼            │
        open ◄──────────┼──┐  nothing
           │ open_duration (and up to 10 % more) is over
           ▼            │  │
        half_open ──────┘  │  one request, the trial, whatever else is outstanding
           │    it succeeded: start over, with a window of 1
           └───────────────┘
                it failed

    Rounds: a failure that cuts the window and raises the backoff ends a round.  What began before it and ends later
    tells nothing new, neither of the window nor of the backoff: a hundred requests that fail together count as one.
    Likewise the breaker, once open, listens to its trial alone, and what began before the trial's end never counts:
    a success that began before it opened tells how the endpoint was.

        in a round      window                                           backoff
        success         +1 (slow start: doubles each round trip) below   half; below 2 s: 100 ms less
                        the threshold, else +1 per window of successes;
                        only while at least half of it is in use, and
                        only as far as that brings more (GrowthWatch)
        first failure   half, at least 1; the threshold becomes half of  100 ms, else doubled, at most 60 s
                        what the window was when backing off began

    The duration of `open` stays the same however often the trial fails: a trial costs one request, and an endpoint
    that recovers after a day must not wait longer than its owner has configured.  A breaker that is not closed
    takes the place of the backoff.

    No state is dead: with nothing outstanding there is room, or `opens_at` is a time to come.
    """

    __slots__ = (
        "_backoff",
        "_bucket",
        "_counts_after",
        "_growing_until",
        "_jitter",
        "_last_peak",
        "_opened_at",
        "_options",
        "_outstanding_of_round",
        "_peak",
        "_retry_at",
        "_round_began_after",
        "_spaced_from",
        "_spread",
        "_started",
        "_threshold",
        "_trial",
        "_watch",
        "_window",
        "breaker",
        "consecutive_failures",
        "mean_latency",
        "outstanding",
        "version",
    )

    def __init__(
        self,
        options: PushOptions,
        *,
        now: float,
        jitter: Jitter = retry_jitter,
        failures_before: int | None = None,
    ) -> None:
        """`jitter` gives the fraction, at most 0.1, by which a pause is longer than it must be.

        `failures_before`: the origin is in trouble, and has failed so often in a row (known_origins.py).  Then the
        window begins with 1, and the breaker half open if it would be open by now: one request tells.
        """
        self._options = options
        self._jitter = jitter
        self._bucket = _bucket(options, now)
        self.breaker: BreakerState = "closed"
        self.consecutive_failures = 0
        self.outstanding = 0  # requests started and not ended
        self.mean_latency = 0.0  # seconds, of successes; the recent ones weigh most; 0 before the first
        self.version = (
            0  # grows with the breaker's state, failures in a row, begin and end of backing off, Retry-After
        )
        self._started = 0  # requests so far; the last one's number
        self._retry_at = now  # nothing starts before: a Retry-After
        self._opened_at = now  # when the breaker opened last
        self._trial: Attempt | None = None  # of half_open
        self._spread = 1.0  # what the pause that is on is multiplied by, for jitter
        self._start_over(FIRST_WINDOW if failures_before is None else 1, now)
        self.consecutive_failures = failures_before or 0
        if self.consecutive_failures >= options.circuit_breaker.failure_threshold:
            self._turn("half_open")

    def _start_over(self, window: int, now: float) -> None:
        self._window = float(window)
        self._watch = GrowthWatch(self._window, now)
        self._threshold = float(LINEAR_ABOVE)  # slow start below it
        self._backoff = 0.0  # seconds; 0: not backing off
        self._spaced_from = self._opened_at  # the last start or failure; the backoff runs from there
        self._counts_after = self._round_began_after = self._started  # later requests count
        self._outstanding_of_round = 0
        self._growing_until = self._started  # the round trip that _peak is of ends with a later request's success
        self._peak = self._last_peak = self.outstanding  # most outstanding in this round trip and the one before

    @property
    def window(self) -> int:
        """How many requests may be outstanding."""
        return min(int(self._window), self._cap)

    @property
    def _cap(self) -> int:
        return min(MAX_WINDOW, self._options.max_outstanding_requests or MAX_WINDOW)

    @property
    def does_well(self) -> bool:
        """It takes what it gets, as far as is known; of a new endpoint that is not known."""
        return self.mean_latency > 0 and not self.consecutive_failures

    def reconfigure(self, options: PushOptions, *, now: float) -> None:
        """Options changed; what is known of the endpoint stays.  For another endpoint make a new one."""
        rate = options.messages_per_second
        if self._bucket is None or rate is None:
            self._bucket = _bucket(options, now)
        elif rate != self._options.messages_per_second:
            self._bucket.change_rate(rate, now)
        self._options = options
        self._window = min(self._window, float(self._cap))
        self.version += 1

    def room(self, now: float) -> int:
        """How many requests may start at this moment; 0: none.  Notices that the breaker's time has passed."""
        if now < self._retry_at:
            return 0
        self._end_open(now)
        match self.breaker:
            case "open":
                return 0
            case "half_open":
                return min(1, self._rate_room(now)) if self._trial is None else 0
        free = self.window - self.outstanding
        if self._backoff:
            alone = not self._outstanding_of_round and now >= self._backoff_ends
            free = min(free, int(alone))
        return min(free, self._rate_room(now)) if free > 0 else 0

    def flows(self, now: float) -> bool:
        """Whether only the answers that are awaited limit how many requests start: nothing else holds them back."""
        held_back = self._backoff or self.consecutive_failures or self._bucket is not None or now < self._retry_at
        return self.breaker == "closed" and not held_back

    def opens_at(self, now: float) -> float | None:
        """When there will be room without any answer coming in; None: there is room now, or an answer must come."""
        if self.room(now):
            return None
        times = [self._retry_at]
        if self._bucket is not None:
            times.append(self._bucket.open_at)
        match self.breaker:
            case "open":
                times.append(self._open_ends)
            case "half_open":
                if self._trial is not None:
                    return None
            case "closed":
                if self.outstanding >= self.window or (self._backoff and self._outstanding_of_round):
                    return None
                times.append(self._backoff_ends)
        return max(times)

    def begin(self, now: float, *, messages: int = 1) -> Attempt:
        """A request with so many messages starts.  One that starts although there is no room is counted, too."""
        self._end_open(now)
        self._started += 1
        attempt = Attempt(self._started, now)
        self.outstanding += 1
        self._outstanding_of_round += 1
        self._peak = max(self._peak, self.outstanding)
        self._spaced_from = max(self._spaced_from, now)
        if self._bucket is not None:
            self._bucket.take(messages, now)
        if self.breaker == "half_open" and self._trial is None:
            self._trial = attempt
        return attempt

    def succeeded(self, attempt: Attempt, now: float) -> None:
        """The endpoint took it."""
        is_trial = attempt is self._trial
        self._end(attempt)
        latency = max(0.0, now - attempt.began)
        weight = _LATENCY_WEIGHT if self.mean_latency else 1.0
        self.mean_latency += (latency - self.mean_latency) * weight
        if is_trial:
            self._note_success()
            self._turn("closed")
            self._start_over(1, now)
        elif self._counts(attempt):
            self._note_success()
            if attempt.number > self._round_began_after:
                self._grow(attempt, now)
                self._lower_backoff()

    def failed(self, attempt: Attempt, now: float, *, retry_after: float | None = None) -> None:
        """It refused, could not be reached, or did not answer in time.  `retry_after`: seconds that it asks for."""
        is_trial = attempt is self._trial
        self._end(attempt)
        if retry_after is not None and retry_after > 0:
            self._retry_at = max(self._retry_at, now + min(retry_after, MAX_RETRY_AFTER))
            self.version += 1
        if is_trial:
            self._note_failure()
            self._open(now)
        elif self._counts(attempt):
            self._note_failure()
            self._spaced_from = max(self._spaced_from, now)
            if attempt.number > self._round_began_after:
                self._end_round(now)
            if self.consecutive_failures >= self._options.circuit_breaker.failure_threshold:
                self._open(now)

    def abandoned(self, attempt: Attempt, now: float) -> None:
        """It ended without an outcome, because we stopped it: that frees its room and tells nothing."""
        self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        assert not attempt.ended, "an attempt ends once"
        attempt.ended = True
        self.outstanding -= 1
        if attempt.number > self._round_began_after:
            self._outstanding_of_round -= 1
        if attempt is self._trial:
            self._trial = None

    def _counts(self, attempt: Attempt) -> bool:
        return self.breaker == "closed" and attempt.number > self._counts_after

    def _note_success(self) -> None:
        self.version += bool(self.consecutive_failures)
        self.consecutive_failures = 0

    def _note_failure(self) -> None:
        self.version += 1
        self.consecutive_failures += 1

    def _grow(self, attempt: Attempt, now: float) -> None:
        if attempt.number > self._growing_until:
            self._growing_until, self._last_peak, self._peak = self._started, self._peak, self.outstanding
        if self._window < 2 * max(self._peak, self._last_peak):
            slow_start = self._window < min(self._threshold, LINEAR_ABOVE)
            self._window += 1.0 if slow_start else 1.0 / self._window
        if self._window > LINEAR_ABOVE and self.mean_latency > SLOW_LATENCY:
            self._window = float(LINEAR_ABOVE)
        self._watch.succeeded(now, window=self._window, latency=self.mean_latency)
        self._window = min(self._window, self._cap, self._watch.ceiling)

    def _lower_backoff(self) -> None:
        if not self._backoff:
            return
        self._backoff = self._backoff / 2 if self._backoff > _HALVED_ABOVE else self._backoff - MIN_BACKOFF
        if self._backoff < MIN_BACKOFF / 2:
            self._backoff = 0.0
            self.version += 1

    def _end_round(self, now: float) -> None:
        if not self._backoff:
            self._threshold = max(2.0, self._window / 2)
        self._window = max(1.0, self._window / 2)
        self._watch = GrowthWatch(self._window, now)
        self._backoff = min(MAX_BACKOFF, max(MIN_BACKOFF, self._backoff * 2))
        self._spread = 1.0 + self._jitter()
        self._round_began_after = self._growing_until = self._started
        self._outstanding_of_round = 0
        self._peak = self._last_peak = 0

    def _open(self, now: float) -> None:
        self._opened_at = now
        self._spread = 1.0 + self._jitter()
        self._turn("open")
        self._start_over(1, now)

    def _end_open(self, now: float) -> None:
        if self.breaker == "open" and now >= self._open_ends:
            self._turn("half_open")

    def _turn(self, state: BreakerState) -> None:
        self.breaker = state
        self.version += 1

    @property
    def _open_ends(self) -> float:
        return self._opened_at + self._options.circuit_breaker.open_duration.total_seconds() * self._spread

    @property
    def _backoff_ends(self) -> float:
        return self._spaced_from + min(MAX_BACKOFF, self._backoff * self._spread)

    def _rate_room(self, now: float) -> int:
        """In requests.  Of digests, which may be full, one may go into debt."""
        if self._bucket is None:
            return MAX_WINDOW
        messages = self._bucket.messages(now)
        if messages and self._options.digest is not None:
            return max(1, messages // self._options.digest.max_messages)
        return messages


def _bucket(options: PushOptions, now: float) -> TokenBucket | None:
    rate = options.messages_per_second
    return None if rate is None else TokenBucket(rate, now=now)
