"""Decides whether another request to an endpoint may start now.  Pure: times are parameters, in seconds."""

from collections.abc import Hashable

from broker.core.process.jitter import Jitter, retry_jitter
from broker.core.pushing.health.fault import MIN_BACKOFF, PROBE_INTERVAL, Fault, MessagePause, pause_of_message
from broker.core.pushing.health.growth_watch import GrowthWatch
from broker.core.pushing.health.recent_outcomes import Outcome, RecentOutcomes
from broker.core.pushing.health.running_requests import Attempt, RunningRequests
from broker.core.pushing.health.token_bucket import token_bucket
from broker.model.push_config import PushOptions
from broker.model.push_state import BreakerState

# The first three are Google's (Push subscriptions, delivery rate): the window starts single-digit, grows
# exponentially to 3,000 and linearly from there, and falls back to 3,000 when the mean latency exceeds a second.
FIRST_WINDOW = 8
LINEAR_ABOVE = 3_000
SLOW_LATENCY = 1.0  # seconds; an answer that takes longer is slow
MAX_WINDOW = 10_000  # ours: a sensible maximum of sockets to one endpoint

_MAX_PROBES = 64  # requests outstanding at once while the endpoint does not answer

MAX_RETRY_AFTER = 3_600.0  # seconds; an endpoint that asks for more is tried again after this
_OVERLOADED_SHARE = 0.1  # of failed requests, from which on the window of an overloaded endpoint grows linearly
_LATENCY_WEIGHT = 1 / 8  # of the newest request in the mean


ALL_FAIL = 8  # different messages failed in a row: the endpoint backs off as a whole
GONE_AFTER = 3  # answers with 410 after which the endpoint is considered gone


class FailedMessages:
    """A set of bounded size: beyond what anybody asks for it does not grow."""

    __slots__ = ("_gone", "messages")

    def __init__(self) -> None:
        self.messages: set[Hashable] = set()
        self._gone: set[Hashable] = set()

    @property
    def are_gone(self) -> bool:
        """Whether the endpoint has answered with 410 often enough to be believed."""
        return len(self._gone) >= GONE_AFTER

    def add(self, message: Hashable, fault: Fault, *, most: int) -> None:
        """Adds a message that failed; `most`: how many the caller distinguishes."""
        if len(self.messages) < max(most, ALL_FAIL):
            self.messages.add(message)
        if fault is not Fault.GONE:
            self._gone.discard(message)
        elif not self.are_gone:
            self._gone.add(message)

    def clear(self) -> None:
        """Clears the messages, since a request succeeded."""
        self.messages.clear()
        self._gone.clear()


class EndpointHealth:
    """The health of an endpoint, and therefore how many requests it may get.

    A failure counts for the message or for the endpoint.  It counts for the message if the endpoint rejects it
    (fault.py), if the message has failed before while others succeed, or if the request was stuck.  Such a failure
    delays that message only.  All others count for the endpoint:

        closed ◄────────┐  what is free of the window; while backing off, a probe from time to time
           │ different messages have failed `failure_threshold` times without a success in between
           ▼            │
        open ◄──────────┼──┐  nothing
           │ open_duration (and up to 10 % more) is over
           ▼            │  │
        half_open ──────┘  │  a probe
           │    it succeeded: start over, with a window of 1
           └───────────────┘
                it failed

    In every state nothing starts until a Retry-After is over, and no more than the rate allows.

    The window follows the share of failures that count for the endpoint among its latest requests
    (recent_outcomes.py).  A success adds 1 (slow start: it doubles each round trip) below the threshold, else 1 per
    window of successes; only while at least half of the window is in use, and only as far as that brings more
    (growth_watch.py).  A round trip with failures multiplies it by 1 - share/2, as in DCTCP (RFC 8257).  If more
    than a tenth fails because the endpoint is overloaded, linear growth begins there.

    The endpoint backs off once ALL_FAIL different messages have failed without a success in between, also if it
    rejected them; what fails again while others succeed does not count.  Then it gets one probe at a time, at first
    after 100 ms, then after twice as long each time, up to PROBE_INTERVAL; each time the window is halved.  A probe
    that is not answered does not hold up the next one for longer than that.  The first success ends it.

    A request that later ones have overtaken and that takes far longer than they did is stuck (running_requests.py):
    it does not count against the window, only against `max_outstanding_requests`.

    No state is dead: with nothing outstanding there is room, or `opens_at` is a time to come.
    """

    __slots__ = (
        "_backoff",
        "_before",
        "_bucket",
        "_cap",
        "_counts_after",
        "_faults_of_trip",
        "_jitter",
        "_last_failure",
        "_last_peak",
        "_last_start",
        "_opened_at",
        "_options",
        "_outstanding_of_round",
        "_peak",
        "_recent",
        "_retry_at",
        "_round_began_after",
        "_running",
        "_spread",
        "_started",
        "_threshold",
        "_trip_until",
        "_watch",
        "_window",
        "breaker",
        "failed_messages",
        "mean_latency",
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
        self._set_options(options)
        self._jitter = jitter
        self._bucket = token_bucket(options.messages_per_second, now=now)
        self.breaker: BreakerState = "closed"
        self.mean_latency = 0.0  # seconds, of successes; the recent ones weigh most; 0 before the first
        self._running = RunningRequests()
        self._started = 0  # requests so far; the last one's number
        self._last_start = self._last_failure = now
        self._retry_at = now  # nothing starts before: a Retry-After
        self._opened_at = now  # when the breaker opened last
        self._spread = 1.0  # the jitter factor of the current pause
        self._recent = RecentOutcomes()
        self.failed_messages = FailedMessages()
        self._start_over(FIRST_WINDOW if failures_before is None else 1, now)
        self._before = failures_before or 0  # failures of the origin, until the first success
        if self.consecutive_failures >= options.circuit_breaker.failure_threshold:
            self.breaker = "half_open"

    def _start_over(self, window: int, now: float) -> None:
        self._window = float(window)
        self._watch = GrowthWatch(self._window, now)
        self._threshold = float(LINEAR_ABOVE)  # slow start below it
        self._backoff = 0.0  # seconds; 0: not backing off
        self._counts_after = self._round_began_after = self._started  # later requests count
        self._outstanding_of_round = 0
        self._trip_until = self._started  # a round trip ends when a later request does
        self._faults_of_trip: set[Fault] = set()  # of failures that count for the endpoint
        running = len(self._running.running)
        self._peak = self._last_peak = running  # the most at once in this round trip and the previous one

    @property
    def outstanding(self) -> int:
        """Requests started and not ended."""
        return len(self._running.running) + self._running.stuck

    @property
    def window(self) -> int:
        """The number of requests that may be outstanding, besides those that are stuck."""
        return min(int(self._window), self._cap)

    @property
    def consecutive_failures(self) -> int:
        """The number of different messages that have failed since the last success."""
        return self._before + len(self.failed_messages.messages)

    @property
    def does_well(self) -> bool:
        """Whether the endpoint accepts most of its requests, as far as is known; False for a new endpoint."""
        some_failed = self._before or self.failed_messages.messages
        return self.mean_latency > 0 and self.breaker == "closed" and not (some_failed and self._all_fail)

    def reconfigure(self, options: PushOptions, *, now: float) -> None:
        """Options changed; what is known of the endpoint stays.  For another endpoint make a new one."""
        rate = options.messages_per_second
        if self._bucket is None or rate is None:
            self._bucket = token_bucket(options.messages_per_second, now=now)
        elif rate != self._options.messages_per_second:
            self._bucket.change_rate(rate, now)
        self._set_options(options)
        self._window = min(self._window, float(self._cap))

    def _set_options(self, options: PushOptions) -> None:
        self._options = options
        self._cap = min(MAX_WINDOW, options.max_outstanding_requests or MAX_WINDOW)

    def available(self, now: float) -> int:
        """Returns how many requests may start at this moment; 0: none.

        Ends the open state once its time has passed.
        """
        if now < self._retry_at:
            return 0
        if self.breaker != "closed" or self._backoff:
            self._end_open(now)
            if self.breaker == "open":
                return 0
            free = int(now >= self._probe_at and self._outstanding_of_round < _MAX_PROBES)
        else:
            requests = self._running
            if len(requests.running) >= int(self._window) or now >= requests.check_at:
                requests.set_aside_stuck(now, self.mean_latency)
            window, most = int(self._window), self._cap - requests.stuck  # stuck requests only count for the cap
            free = (window if window < most else most) - len(requests.running)
        if free <= 0 or self._bucket is None:
            return free if free > 0 else 0
        return min(free, self._bucket.requests(now, digest=self._options.digest))

    def flows(self, now: float) -> bool:
        """Whether only the answers that are awaited limit how many requests start: nothing else holds them back."""
        return self.does_well and not self._backoff and self._bucket is None and now >= self._retry_at

    def opens_at(self, now: float) -> float | None:
        """Returns when requests may start without any answer coming in.

        None: they may now, or an answer must come.
        """
        if self.available(now):
            return None
        times = [self._retry_at]
        if self._bucket is not None:
            times.append(self._bucket.open_at)
        if self.breaker == "open":
            times.append(self._opened_at + self._pause)
        elif self._probes:
            if self._outstanding_of_round >= _MAX_PROBES:
                return None
            times.append(self._probe_at)
        elif self.outstanding >= self._cap:
            return None
        elif len(self._running.running) >= self.window:
            stuck_at = self._running.stuck_at(len(self._running.running) - self.window, self.mean_latency)
            if stuck_at is None:
                return None
            times.append(stuck_at)
        return max(times)

    def begin(
        self, now: float, *, messages: int = 1, message: Hashable | None = None, is_retry: bool = False
    ) -> Attempt:
        """A request with so many messages starts.  One that starts although there is no room is counted, too.

        `message` identifies what it carries (None: something that no other request carries); `is_retry`: that has
        failed before.
        """
        self._end_open(now)
        self._started += 1
        attempt = Attempt(self._started, now, self._started if message is None else message, is_retry)
        self._running.running[attempt] = None
        self._outstanding_of_round += 1
        if (running := len(self._running.running)) > self._peak:
            self._peak = running
        self._last_start = max(self._last_start, now)
        if self._bucket is not None:
            self._bucket.take(messages, now)
        return attempt

    def succeeded(self, attempt: Attempt, now: float) -> None:
        """Records that the endpoint accepted a request."""
        self._end(attempt)
        latency = now - attempt.began if now > attempt.began else 0.0
        weight = _LATENCY_WEIGHT if self.mean_latency else 1.0
        self.mean_latency += (latency - self.mean_latency) * weight
        if attempt.number <= self._counts_after:
            return
        if attempt.number > self._running.last_success:
            self._running.last_success = attempt.number
        self._before = 0
        if self.failed_messages.messages:
            self.failed_messages.clear()
        if self.breaker != "closed":
            self.breaker = "closed"
            self._recent.clear()
            self._start_over(1, now)
            return
        if self._backoff:
            self._backoff = 0.0
            self._threshold = float(LINEAR_ABOVE)
            self._recent.clear()
        self._recent.note(now, Outcome.SUCCEEDED)
        self._end_trip(attempt, now)
        self._grow(now)

    def failed(
        self, attempt: Attempt, now: float, fault: Fault = Fault.OVERLOADED, *, retry_after: float | None = None
    ) -> MessagePause:
        """Records that a request failed.  Returns the pause of its message.

        `retry_after`: seconds that the answer asks for.
        """
        self._end(attempt)
        wanted = min(retry_after, MAX_RETRY_AFTER) if retry_after is not None and retry_after > 0 else 0.0
        if attempt.number <= self._counts_after:
            return self._pause_of_message(is_of_endpoint=True, wanted=wanted)
        if self._before and not fault.is_of_endpoint:  # the origin does answer
            self._before, self.breaker = 0, "closed"
        overtaken = self._running.was_overtaken(attempt, now, self.mean_latency)
        repeated = attempt.is_retry and self._recent.any_succeeded(now)
        is_of_endpoint = fault.is_of_endpoint and not overtaken and not repeated
        self._recent.note(now, Outcome.ENDPOINT_FAILED if is_of_endpoint else Outcome.MESSAGE_FAILED)
        if not overtaken and not repeated:
            most = self._options.circuit_breaker.failure_threshold
            self.failed_messages.add(attempt.message, fault, most=most)
            if is_of_endpoint:
                self._faults_of_trip.add(fault)
            if is_of_endpoint or self._all_fail:
                self._wait(now, wanted)
            self._end_trip(attempt, now)
            if self._all_fail and (attempt.number > self._round_began_after or not self._backoff):
                self._back_off(now)
            if self._should_open:
                self._open(now)
        return self._pause_of_message(is_of_endpoint=is_of_endpoint, wanted=wanted)

    def _pause_of_message(self, *, is_of_endpoint: bool, wanted: float) -> MessagePause:
        if self._all_fail or self.breaker != "closed":
            return MessagePause(None)
        return pause_of_message(is_of_endpoint=is_of_endpoint, wanted=wanted)

    def abandoned(self, attempt: Attempt, now: float) -> None:
        """Records that a request was stopped by the broker: its room is free again, and it counts as no outcome."""
        self._end(attempt)

    def _end(self, attempt: Attempt) -> None:
        self._running.remove(attempt)
        if attempt.number > self._round_began_after:
            self._outstanding_of_round -= 1

    def _wait(self, now: float, wanted: float) -> None:
        """Honours a Retry-After: until the next probe only, if it concerns one message while others succeed."""
        if wanted and self.consecutive_failures == 1 and self._recent.any_succeeded(now):
            wanted = min(wanted, PROBE_INTERVAL)
        self._retry_at = max(self._retry_at, now + wanted)
        self._last_failure = now

    @property
    def _all_fail(self) -> bool:
        return self.consecutive_failures >= ALL_FAIL

    @property
    def _should_open(self) -> bool:
        if self.breaker == "half_open":
            return True
        threshold = self._options.circuit_breaker.failure_threshold
        return self.breaker == "closed" and self.consecutive_failures >= threshold

    def _grow(self, now: float) -> None:
        if self._window < 2 * max(self._peak, self._last_peak):
            slow_start = self._window < min(self._threshold, LINEAR_ABOVE)
            self._window += 1.0 if slow_start else 1.0 / self._window
        if self._window > LINEAR_ABOVE and self.mean_latency > SLOW_LATENCY:
            self._window = float(LINEAR_ABOVE)
        self._watch.succeeded(now, window=self._window, latency=self.mean_latency)
        self._window = min(self._window, self._cap, self._watch.ceiling)

    def _end_trip(self, attempt: Attempt, now: float) -> None:
        """Shrinks the window once a round trip, if anything failed in it."""
        if attempt.number <= self._trip_until:
            return
        self._trip_until, self._last_peak, self._peak = self._started, self._peak, len(self._running.running)
        if self._faults_of_trip:
            share = self._recent.failing_share(now)
            self._shrink(1 - share / 2, now)
            if Fault.OVERLOADED in self._faults_of_trip and share > _OVERLOADED_SHARE:
                self._threshold = max(2.0, self._window)
            self._faults_of_trip.clear()

    def _shrink(self, factor: float, now: float) -> None:
        self._window = max(1.0, self._window * factor)
        self._watch = GrowthWatch(self._window, now)

    def _back_off(self, now: float) -> None:
        """Begins a pause, and a round: what began before it and fails later says nothing new."""
        self._shrink(0.5, now)
        self._backoff = min(PROBE_INTERVAL, max(MIN_BACKOFF, self._backoff * 2))
        self._spread = 1.0 + self._jitter()
        self._round_began_after = self._started
        self._outstanding_of_round = 0

    # --- pauses --------------------------------------------------------------------------------------------------

    @property
    def _probes(self) -> bool:
        """Whether requests start one at a time, to see how the endpoint does."""
        return self.breaker == "half_open" or self._backoff > 0

    @property
    def _probe_at(self) -> float:
        if self._outstanding_of_round:
            return self._last_start + max(PROBE_INTERVAL, self._pause)
        if self.breaker == "half_open":
            return self._opened_at
        return max(self._last_start, self._last_failure) + self._pause

    @property
    def _pause(self) -> float:
        if self.breaker != "closed":
            return self._options.circuit_breaker.open_duration.total_seconds() * self._spread
        return min(PROBE_INTERVAL, self._backoff * self._spread)

    def _open(self, now: float) -> None:
        counts_after = self._counts_after
        was_closed = self.breaker == "closed"
        self._opened_at = now
        self._spread = 1.0 + self._jitter()
        self.breaker = "open"
        self._start_over(1, now)
        if not was_closed:  # another probe may still be outstanding, and succeed
            self._counts_after = counts_after

    def _end_open(self, now: float) -> None:
        if self.breaker == "open" and now >= self._opened_at + self._pause:
            self.breaker = "half_open"
