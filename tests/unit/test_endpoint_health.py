"""Endpoint health: promises by example, then a state machine that holds them against every order of events."""

import random
from datetime import timedelta
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.domain.push_config import GOOGLES_OPTIONS, CircuitBreaker, Digest, PushOptions
from broker.workers.push.endpoint_health import (
    FIRST_WINDOW,
    LINEAR_ABOVE,
    MAX_RETRY_AFTER,
    Attempt,
    EndpointHealth,
)

_NEVER_OPENS = PushOptions(circuit_breaker=CircuitBreaker(failure_threshold=1_000_000))
_FRAGILE = PushOptions(
    circuit_breaker=CircuitBreaker(failure_threshold=3, open_duration=timedelta(seconds=30)),
)
_HUGE = 5_000_000.0  # a machine that has been up for two months: times are floats


def _health(options: PushOptions = _NEVER_OPENS, *, now: float = _HUGE) -> EndpointHealth:
    return EndpointHealth(options, now=now, jitter=lambda: 0.0)


def _round(health: EndpointHealth, now: float, latency: float = 0.0625) -> float:
    """Use all the room there is, successfully; the time afterwards."""
    attempts = [health.begin(now) for _ in range(health.room(now))]
    for attempt in attempts:
        health.succeeded(attempt, now + latency)
    return now + latency


def _fail_once(health: EndpointHealth, now: float, latency: float = 0.0) -> float:
    """Wait until there is room, let one request fail; when it started."""
    started = health.opens_at(now) or now
    assert health.room(started) > 0
    health.failed(health.begin(started), started + latency)
    return started


def _opened(options: PushOptions = _FRAGILE) -> tuple[EndpointHealth, float]:
    health, now = _health(options), _HUGE
    for _ in range(options.circuit_breaker.failure_threshold):
        now = _fail_once(health, now)
    assert health.breaker == "open"
    return health, now


def test_at_an_origin_in_trouble_one_request_tells() -> None:
    """Also whether the breaker closes, if it would be open by now."""
    for failures, breaker in ((0, "closed"), (19, "closed"), (20, "half_open"), (500, "half_open")):
        health = EndpointHealth(PushOptions(), now=0, jitter=lambda: 0.0, failures_before=failures)
        assert (health.breaker, health.room(0), health.consecutive_failures) == (breaker, 1, failures)
        trial = health.begin(0)
        assert health.room(0) == 0
        health.failed(trial, 1)
        assert health.breaker == ("open" if failures >= 19 else "closed")
        assert health.opens_at(1) == (31 if failures >= 19 else 1.1)


class TestWindow:
    def test_a_new_endpoint_gets_eight_requests_and_no_more(self) -> None:
        health = _health()
        assert health.room(_HUGE) == FIRST_WINDOW == 8
        for _ in range(8):
            health.begin(_HUGE)
        assert health.room(_HUGE) == 0
        assert health.opens_at(_HUGE) is None

    def test_it_doubles_with_each_round_trip_until_the_first_failure(self) -> None:
        health, now = _health(), _HUGE
        windows = []
        for _ in range(4):
            now = _round(health, now)
            windows.append(health.window)
        assert windows == [16, 32, 64, 128]

    def test_a_failure_halves_it_and_from_there_it_grows_by_one_a_round_trip(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(3):
            now = _round(health, now)
        _fail_once(health, now)
        assert health.window == 32
        now = health.opens_at(now) or now
        health.succeeded(health.begin(now), now)  # ends the backoff
        windows = []
        for _ in range(4):
            now = _round(health, now)
            windows.append(health.window)
        assert windows[0] - 32 <= 1
        assert [after - before for before, after in pairwise(windows)] == [1, 1, 1]

    def test_requests_that_fail_together_halve_it_once(self) -> None:
        health = _health()
        attempts = [health.begin(_HUGE) for _ in range(8)]
        for attempt in attempts:
            health.failed(attempt, _HUGE + 1)
        assert health.window == 4

    def test_it_never_falls_below_one(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(30):
            now = _fail_once(health, now)
        assert health.window == 1

    def test_after_an_outage_slow_start_leads_to_half_of_what_it_was(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(6):
            now = _round(health, now)
        assert health.window == 512
        for _ in range(6):
            now = _fail_once(health, now)
        assert health.window == 8
        while (opens := health.opens_at(now)) is not None:
            now = _round(health, opens)
        for _ in range(6):
            now = _round(health, now)
        assert 250 <= health.window <= 270

    def test_a_window_that_is_not_used_does_not_grow(self) -> None:
        health = _health()
        for number in range(1_000):
            health.succeeded(health.begin(_HUGE + number), _HUGE + number)
        assert health.window == FIRST_WINDOW

    def test_it_grows_no_further_than_brings_more(self) -> None:
        """An endpoint that takes 1,000 a second however many wait: more than a few need not wait there."""
        health, now = _health(), _HUGE
        waiting: list[Attempt] = []
        windows = []
        for _ in range(10_000):
            waiting += [health.begin(now) for _ in range(health.room(now))]
            now += 0.001
            health.succeeded(waiting.pop(0), now)
            windows.append(health.window)
        assert max(windows) <= 64, "now and then a larger one is tried"
        assert sum(windows[1_000:]) / 9_000 <= 24

    def test_it_grows_again_when_the_endpoint_has_become_able_to_take_more(self) -> None:
        health, now = _health(), _HUGE
        waiting: list[Attempt] = []
        for answers in [1] * 3_000 + [50] * 5_000:
            waiting += [health.begin(now) for _ in range(health.room(now))]
            now += 0.001
            for attempt in waiting[:answers]:
                health.succeeded(attempt, now)
            waiting = waiting[answers:]
        assert health.window >= 50

    def test_above_3000_it_grows_by_one_a_round_trip(self) -> None:
        health, now = _health(), _HUGE
        while health.window < LINEAR_ABOVE:
            now = _round(health, now)
        before = health.window
        now = _round(health, now)
        assert health.window - before in (0, 1)

    def test_above_3000_it_falls_back_when_answers_take_more_than_a_second(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(20):
            now = _round(health, now)
        assert health.window > LINEAR_ABOVE
        now = _round(health, now, latency=2.0)
        assert health.mean_latency > 1
        assert health.window == LINEAR_ABOVE

    def test_the_subscriptions_own_cap_holds_and_a_higher_one_is_grown_into(self) -> None:
        capped = PushOptions(max_outstanding_requests=3)
        health, now = _health(capped), _HUGE
        assert health.room(now) == 3
        for _ in range(5):
            now = _round(health, now)
        assert health.window == 3
        health.reconfigure(GOOGLES_OPTIONS, now=now)
        assert health.window == 3
        now = _round(health, now)
        assert health.window == 6


class TestPushBackoff:
    def test_an_endpoint_that_refuses_everything_is_asked_once_a_minute_in_the_end(self) -> None:
        health, now = _health(), _HUGE
        starts = [now := _fail_once(health, now) for _ in range(14)]
        pauses = [round(after - before, 6) for before, after in pairwise(starts)]
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 60, 60, 60]

    def test_it_counts_from_the_failure_not_from_the_start(self) -> None:
        health = _health()
        _fail_once(health, _HUGE, latency=7)
        assert health.opens_at(_HUGE + 7) == pytest.approx(_HUGE + 7.1)

    def test_while_it_lasts_requests_go_one_at_a_time(self) -> None:
        health = _health()
        _fail_once(health, _HUGE)
        assert health.room(_HUGE + 1) == 1
        trying = health.begin(_HUGE + 1)
        assert health.room(_HUGE + 9) == 0
        assert health.opens_at(_HUGE + 9) is None
        health.succeeded(trying, _HUGE + 9)
        assert health.room(_HUGE + 9) > 1

    def test_a_request_from_before_that_hangs_holds_nothing_up_but_its_slot(self) -> None:
        health = _health()
        hanging = [health.begin(_HUGE) for _ in range(3)]
        _fail_once(health, _HUGE)
        assert health.room(_HUGE + 1) == 1
        health.failed(hanging[0], _HUGE + 2)
        assert health.window == 4
        assert health.opens_at(_HUGE + 2) == pytest.approx(_HUGE + 2.1), (
            "not raised, but counted from the last failure"
        )

    def test_one_refusal_in_five_means_about_one_delivery_in_500_ms(self) -> None:
        health, now, chance = _health(), _HUGE, random.Random(1)
        deliveries = 20_000
        for _ in range(deliveries):
            now = max(now + 0.2, health.opens_at(now) or 0)  # five messages a second come in
            attempt = health.begin(now)
            if chance.random() < 0.2:
                health.failed(attempt, now)
            else:
                health.succeeded(attempt, now)
        assert 0.25 < (now - _HUGE) / deliveries < 1.0

    def test_after_the_longest_outage_two_and_a_half_minutes_bring_full_speed(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(14):
            now = _fail_once(health, now)
        recovered = now
        while (opens := health.opens_at(now)) is not None:
            now = _round(health, opens)
        assert now - recovered < 150

    def test_jitter_makes_a_pause_longer_by_a_tenth_at_most_and_never_more_than_a_minute(self) -> None:
        health = EndpointHealth(_NEVER_OPENS, now=0, jitter=lambda: 0.1)
        now = 0.0
        starts = [now := _fail_once(health, now) for _ in range(13)]
        assert starts[1] == pytest.approx(0.11)
        assert starts[-1] - starts[-2] == pytest.approx(60)


class TestRetryAfter:
    def test_nothing_starts_before_it(self) -> None:
        health = _health()
        health.failed(health.begin(_HUGE), _HUGE, retry_after=30)
        assert health.opens_at(_HUGE) == _HUGE + 30
        assert health.room(_HUGE + 29.999) == 0
        assert health.room(_HUGE + 30) == 1

    def test_the_later_of_two_holds_and_so_does_a_longer_backoff(self) -> None:
        health = _health()
        first, second = health.begin(_HUGE), health.begin(_HUGE)
        health.failed(first, _HUGE, retry_after=30)
        health.failed(second, _HUGE, retry_after=0.01)
        assert health.opens_at(_HUGE) == _HUGE + 30
        other = _health()
        other.failed(other.begin(_HUGE), _HUGE, retry_after=0.01)
        assert other.opens_at(_HUGE) == pytest.approx(_HUGE + 0.1)

    @pytest.mark.parametrize(
        ("asked", "waited"), [(1e12, MAX_RETRY_AFTER), (float("inf"), MAX_RETRY_AFTER), (-5, 0.1)]
    )
    def test_an_hour_is_the_longest_and_nonsense_is_nothing(self, asked: float, waited: float) -> None:
        health = _health()
        health.failed(health.begin(_HUGE), _HUGE, retry_after=asked)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + waited)

    def test_the_breakers_trial_waits_for_it_too(self) -> None:
        health, now = _health(_FRAGILE), _HUGE
        for _ in range(2):
            now = _fail_once(health, now)
        now = health.opens_at(now) or now
        health.failed(health.begin(now), now, retry_after=100)
        assert health.breaker == "open"
        assert health.opens_at(now) == pytest.approx(now + 100)


class TestRate:
    def test_a_second_worth_may_go_at_once_and_then_so_many_a_second(self) -> None:
        health = _health(PushOptions(messages_per_second=4))
        assert health.room(_HUGE) == 4
        for _ in range(4):
            health.succeeded(health.begin(_HUGE), _HUGE)
        assert health.room(_HUGE) == 0
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 0.25)
        assert health.room(_HUGE + 0.5) == 2
        assert health.room(_HUGE + 3_600) == 4

    def test_less_than_one_a_second_is_possible(self) -> None:
        health = _health(PushOptions(messages_per_second=0.01))
        assert health.room(_HUGE) == 1
        health.succeeded(health.begin(_HUGE), _HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 100)

    def test_a_digest_counts_its_messages_and_may_be_larger_than_a_seconds_worth(self) -> None:
        digest = Digest(max_messages=100, max_bytes=1_000_000, max_delay=timedelta(seconds=1))
        health = _health(PushOptions(messages_per_second=10, digest=digest))
        assert health.room(_HUGE) == 1
        health.succeeded(health.begin(_HUGE, messages=100), _HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 9.1)

    def test_another_rate_holds_from_the_change_on_and_gives_nothing_for_free(self) -> None:
        health = _health(PushOptions(messages_per_second=1_000))
        for _ in range(1_000):
            health.succeeded(health.begin(_HUGE), _HUGE)
        health.reconfigure(PushOptions(messages_per_second=2), now=_HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 0.5)
        health.reconfigure(PushOptions(), now=_HUGE)
        assert health.room(_HUGE) == FIRST_WINDOW


class TestCircuitBreaker:
    def test_it_opens_after_the_configured_failures_in_a_row_and_nothing_starts(self) -> None:
        health, now = _opened()
        assert health.consecutive_failures == 3
        assert health.room(now + 29) == 0
        assert health.opens_at(now) == pytest.approx(now + 30)

    def test_a_success_in_between_keeps_it_closed(self) -> None:
        health, now = _health(_FRAGILE), _HUGE
        for _ in range(10):
            now = _fail_once(health, _fail_once(health, now))
            now = health.opens_at(now) or now
            health.succeeded(health.begin(now), now)
        assert health.breaker == "closed"

    def test_then_one_request_is_let_through_to_try(self) -> None:
        health, now = _opened()
        assert health.room(now + 30) == 1
        assert health.breaker == "half_open"
        health.begin(now + 30)
        assert health.room(now + 1_000) == 0
        assert health.opens_at(now + 1_000) is None

    def test_if_it_succeeds_the_endpoint_starts_over_with_a_window_of_one(self) -> None:
        health, now = _opened()
        assert health.room(now + 30) == 1
        health.succeeded(health.begin(now + 30), now + 30.0625)
        assert (health.breaker, health.consecutive_failures, health.window) == ("closed", 0, 1)
        now += 30.0625
        windows = []
        for _ in range(4):
            now = _round(health, now)
            windows.append(health.window)
        assert windows == [2, 4, 8, 16], "at full speed: no backoff is left"

    def test_if_it_fails_the_breaker_is_open_as_long_again(self) -> None:
        health, now = _opened()
        for trial in range(1, 5):
            now = health.opens_at(now) or now
            assert health.room(now) == 1
            health.failed(health.begin(now), now)
            assert health.breaker == "open"
            assert health.consecutive_failures == 3 + trial
            assert health.opens_at(now) == pytest.approx(now + 30)

    def test_a_trial_that_we_stopped_is_tried_again(self) -> None:
        health, now = _opened()
        assert health.room(now + 30) == 1
        health.abandoned(health.begin(now + 30), now + 31)
        assert health.breaker == "half_open"
        assert health.room(now + 31) == 1

    @pytest.mark.parametrize("late", ["while open", "while half open", "when closed again"])
    def test_what_began_before_it_opened_changes_nothing_any_more(self, late: str) -> None:
        health, now = _health(_FRAGILE), _HUGE
        old = [health.begin(now) for _ in range(6)]
        for attempt in old[:3]:
            health.failed(attempt, now)
        assert health.breaker == "open"
        if late != "while open":
            assert health.room(now + 30) == 1, "the trial goes whatever still hangs"
            trial = health.begin(now + 30)
        if late == "when closed again":
            health.succeeded(trial, now + 30)
        before = health.breaker, health.consecutive_failures, health.window
        health.succeeded(old[3], now + 31)
        health.failed(old[4], now + 31)
        health.failed(old[5], now + 31)
        assert (health.breaker, health.consecutive_failures, health.window) == before

    def test_another_duration_holds_for_the_time_that_is_on(self) -> None:
        health, now = _opened()
        health.reconfigure(PushOptions(circuit_breaker=CircuitBreaker(open_duration=timedelta(seconds=5))), now=now)
        assert health.opens_at(now) == pytest.approx(now + 5)


class TestVersion:
    def test_it_moves_with_what_is_worth_writing_down_and_not_with_every_success(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(5):
            now = _round(health, now)
        assert health.version == 0
        _fail_once(health, now)
        assert health.version > 0


class Endpoint(RuleBasedStateMachine):
    """Requests start whenever there is room, end in any order and any way, and time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = _HUGE
        self.outstanding: list[Attempt] = []
        self.starts: list[tuple[float, int]] = []

    @initialize(
        rate=st.none() | st.sampled_from([0.05, 1.0, 3.7, 100.0]),
        cap=st.none() | st.integers(1, 20),
        threshold=st.integers(1, 25),
        duration=st.sampled_from([1, 30, 600]),
        digest=st.none() | st.integers(1, 50),
        jitter=st.floats(0, 0.1),
    )
    def create(
        self, rate: float | None, cap: int | None, threshold: int, duration: int, digest: int | None, jitter: float
    ) -> None:
        self.options = PushOptions(
            messages_per_second=rate,
            max_outstanding_requests=cap,
            digest=digest and Digest(max_messages=digest, max_bytes=1_000, max_delay=timedelta(seconds=1)),  # type: ignore[arg-type]
            circuit_breaker=CircuitBreaker(failure_threshold=threshold, open_duration=timedelta(seconds=duration)),
        )
        self.health = EndpointHealth(self.options, now=self.now, jitter=lambda: jitter)

    @rule(share=st.floats(0.1, 1), full=st.booleans())
    def start(self, share: float, full: bool) -> None:
        room = self.health.room(self.now)
        count = min(ceil(room * share), 30)
        for _ in range(count):
            messages = self.options.digest.max_messages if self.options.digest and full else 1
            self.outstanding.append(self.health.begin(self.now, messages=messages))
            self.starts.append((self.now, messages))
            if self.health.breaker == "closed":
                assert self.health.outstanding <= self.health.window
        if count == room:
            assert self.health.room(self.now) == 0 or self.options.digest

    @precondition(lambda self: self.outstanding)
    @rule(data=st.data(), how=st.sampled_from(["succeeded", "failed", "abandoned"]), count=st.integers(1, 30))
    def end(self, data: st.DataObject, how: str, count: int) -> None:
        for _ in range(min(count, len(self.outstanding))):
            attempt = self.outstanding.pop(data.draw(st.integers(0, len(self.outstanding) - 1)))
            getattr(self.health, how)(attempt, self.now)

    @precondition(lambda self: self.outstanding)
    @rule(retry_after=st.floats(0, 10_000))
    def refuse_for_now(self, retry_after: float) -> None:
        self.health.failed(self.outstanding.pop(0), self.now, retry_after=retry_after)
        assert self.health.room(self.now + min(retry_after, 3_600) - 0.001) == 0 or retry_after < 0.001
        # room() may have noticed that the breaker's time passes until then: so does everything else from here on.
        self.now += min(retry_after, 3_600)

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def wait_until_it_opens(self) -> None:
        opens = self.health.opens_at(self.now)
        if opens is not None:
            assert opens > self.now
            self.now = opens
            assert self.health.room(self.now) > 0, "opens_at is true"

    @rule()
    def recover(self) -> None:
        """Whatever happened: once everything has ended, successes bring full health, and soon."""
        for attempt in self.outstanding:
            self.health.abandoned(attempt, self.now)
        self.outstanding.clear()
        for _ in range(60):
            opens = self.health.opens_at(self.now)
            self.now = self.now if opens is None else opens
            attempts = [self.health.begin(self.now) for _ in range(min(2, self.health.room(self.now)))]
            assert attempts
            self.starts += [(self.now, 1)] * len(attempts)
            for attempt in attempts:
                self.health.succeeded(attempt, self.now)
        assert (self.health.breaker, self.health.consecutive_failures) == ("closed", 0)
        self.now += 3_600
        free = self.health.room(self.now)
        assert free == self.health.window or self.options.messages_per_second is not None
        assert free > 0

    @invariant()
    def no_state_is_dead(self) -> None:
        assert self.health.outstanding == len(self.outstanding)
        assert self.health.window >= 1
        room, opens = self.health.room(self.now), self.health.opens_at(self.now)
        if room:
            assert opens is None
        elif not self.outstanding:
            assert opens is not None
            assert opens - self.now <= 3_600 + 2_000 / (self.options.messages_per_second or 1)

    @invariant()
    def the_rate_holds_over_every_span(self) -> None:
        rate = self.options.messages_per_second
        if rate is None or not self.starts:
            return
        bucket, over = max(1.0, rate), self.options.digest.max_messages - 1 if self.options.digest else 0
        end, sent = self.starts[-1][0], 0
        for began, messages in reversed(self.starts[-100:]):
            sent += messages
            assert sent <= rate * (end - began) + bucket + over + 1e-3


TestEndpoint = Endpoint.TestCase
TestEndpoint.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
