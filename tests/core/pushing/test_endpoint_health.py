"""Endpoint health: promises by example, then a state machine that holds them against every order of events."""

from datetime import timedelta
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core.pushing.health.endpoint_health import (
    ALL_FAIL,
    FIRST_WINDOW,
    GONE_AFTER,
    LINEAR_ABOVE,
    MAX_RETRY_AFTER,
    EndpointHealth,
)
from broker.core.pushing.health.fault import (
    ENDPOINT_BACKOFF,
    PROBE_INTERVAL,
    REJECTED_BACKOFF,
    Fault,
    MessagePause,
    fault_of,
)
from broker.core.pushing.health.recent_outcomes import Outcome, RecentOutcomes
from broker.core.pushing.health.running_requests import Attempt
from broker.model.push_config import GOOGLES_OPTIONS, CircuitBreaker, Digest, PushOptions

_NEVER_OPENS = PushOptions(circuit_breaker=CircuitBreaker(failure_threshold=1_000_000))
_FRAGILE = PushOptions(
    circuit_breaker=CircuitBreaker(failure_threshold=3, open_duration=timedelta(seconds=30)),
)
_HUGE = 5_000_000.0  # a machine that has been up for two months: times are floats


def _health(options: PushOptions = _NEVER_OPENS, *, now: float = _HUGE) -> EndpointHealth:
    return EndpointHealth(options, now=now, jitter=lambda: 0.0)


def _round(health: EndpointHealth, now: float, latency: float = 0.0625) -> float:
    """Use all the room there is, successfully; the time afterwards."""
    attempts = [health.begin(now) for _ in range(health.available(now))]
    for attempt in attempts:
        health.succeeded(attempt, now + latency)
    return now + latency


def _fail_once(health: EndpointHealth, now: float, latency: float = 0.0) -> float:
    """Wait until there is room, let one request fail; when it started."""
    started = health.opens_at(now) or now
    assert health.available(started) > 0
    health.failed(health.begin(started), started + latency)
    return started


def _down(health: EndpointHealth, now: float) -> float:
    """Lets as many different messages fail as it takes for the endpoint to back off; the time of the last."""
    for _ in range(ALL_FAIL):
        now = _fail_once(health, now)
    return now


def _opened(options: PushOptions = _FRAGILE) -> tuple[EndpointHealth, float]:
    health, now = _health(options), _HUGE
    for _ in range(options.circuit_breaker.failure_threshold):
        now = _fail_once(health, now)
    assert health.breaker == "open"
    return health, now


def test_at_an_origin_in_trouble_one_request_tells() -> None:
    """Also whether the breaker closes, if it would be open by now."""
    for failures, breaker in ((8, "closed"), (19, "closed"), (20, "half_open"), (500, "half_open")):
        health = EndpointHealth(PushOptions(), now=0, jitter=lambda: 0.0, failures_before=failures)
        assert (health.breaker, health.available(0), health.consecutive_failures) == (breaker, 1, failures)
        trial = health.begin(0)
        assert health.available(0) == 0
        health.failed(trial, 1)
        assert health.breaker == ("open" if failures >= 19 else "closed")
        assert health.opens_at(1) == (11 if failures >= 19 else 1.1)


def test_at_an_origin_in_trouble_an_answer_of_any_status_shows_that_it_is_there() -> None:
    """Also one that rejects the message: the breaker does not open because of it."""
    for failures in (8, 20, 500):
        health = EndpointHealth(PushOptions(), now=0, jitter=lambda: 0.0, failures_before=failures)
        pause = health.failed(health.begin(0), 0.1, Fault.REJECTED)
        assert pause == MessagePause(REJECTED_BACKOFF)
        assert (health.breaker, health.consecutive_failures, health.available(0.1)) == ("closed", 1, 1)


@pytest.mark.parametrize(
    ("statuses", "fault"),
    [
        ((None, 408, 425, 429, 502, 503, 504), Fault.OVERLOADED),
        ((301, 401, 403, 500, 501, 505, 599), Fault.BROKEN),
        ((400, 404, 405, 409, 413, 415, 422, 451), Fault.REJECTED),
        ((410,), Fault.GONE),
    ],
)
def test_a_status_says_whom_a_failure_counts_for(statuses: tuple[int | None, ...], fault: Fault) -> None:
    assert {fault_of(status) for status in statuses} == {fault}


class TestWindow:
    def test_a_new_endpoint_gets_eight_requests_and_no_more(self) -> None:
        health = _health()
        assert health.available(_HUGE) == FIRST_WINDOW == 8
        for _ in range(8):
            health.begin(_HUGE)
        assert health.available(_HUGE) == 0
        assert health.opens_at(_HUGE) is None

    def test_it_doubles_with_each_round_trip_until_the_first_failure(self) -> None:
        health, now = _health(), _HUGE
        windows = []
        for _ in range(4):
            now = _round(health, now)
            windows.append(health.window)
        assert windows == [16, 32, 64, 128]

    def test_a_round_trip_with_failures_takes_half_of_their_share_from_it(self) -> None:
        health, now = _health(), _HUGE
        while health.window < 256:
            now = _round(health, now)
        before = health.window
        health.failed(health.begin(now), now, Fault.BROKEN)  # one of the last 64
        assert health.window == pytest.approx(before * (1 - 1 / 128), abs=1)
        new = _health()
        new.failed(new.begin(_HUGE), _HUGE, Fault.BROKEN)  # all of them
        assert new.window == FIRST_WINDOW / 2

    def test_an_endpoint_that_fails_half_of_its_messages_is_not_given_less_for_it(self) -> None:
        health, now = _health(), _HUGE
        for trip in range(12):
            attempts = [health.begin(now) for _ in range(health.available(now))]
            for number, attempt in enumerate(attempts):
                if (number + trip) % 2:
                    health.failed(attempt, now + 0.05, Fault.BROKEN)
                else:
                    health.succeeded(attempt, now + 0.05)
            now = health.opens_at(now + 0.05) or now + 0.05
        assert health.window > FIRST_WINDOW

    def test_what_a_message_alone_is_to_blame_for_does_not_shrink_it(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(3):
            now = _round(health, now)
        before = health.window
        for _ in range(200):
            health.failed(health.begin(now, message="poison", is_retry=True), now, Fault.BROKEN)
            health.failed(health.begin(now, message="bad"), now, Fault.REJECTED)
            health.succeeded(health.begin(now), now)
        assert health.window >= before
        assert health.available(now) >= before

    def test_an_overloaded_endpoint_grows_by_one_a_round_trip_from_where_it_failed(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(3):
            now = _round(health, now)
        assert health.window == 64
        attempts = [health.begin(now) for _ in range(64)]
        for number, attempt in enumerate(attempts):
            (health.failed if number % 4 == 0 else health.succeeded)(attempt, now + 0.0625)
        now = _round(health, now + 0.0625)
        windows = [health.window]
        for _ in range(4):
            now = _round(health, now)
            windows.append(health.window)
        assert [after - before for before, after in pairwise(windows)] == [1, 1, 1, 1]

    def test_requests_that_fail_together_cut_it_once_and_then_the_endpoint_backs_off(self) -> None:
        health = _health()
        attempts = [health.begin(_HUGE) for _ in range(8)]
        for attempt in attempts:
            health.failed(attempt, _HUGE + 1)
        assert health.window == 2, "the round trip is over with the first of them, and all have failed"
        assert health.opens_at(_HUGE + 1) == pytest.approx(_HUGE + 1.1)

    def test_it_never_falls_below_one(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(30):
            now = _fail_once(health, now)
        assert health.window == 1

    def test_after_an_outage_it_doubles_with_each_round_trip(self) -> None:
        health, now = _health(), _HUGE
        for _ in range(6):
            now = _round(health, now)
        for _ in range(20):
            now = _fail_once(health, now)
        now = _round(health, health.opens_at(now) or now)
        windows = []
        for _ in range(5):
            now = _round(health, now)
            windows.append(health.window)
        assert [after / before for before, after in pairwise(windows)] == [2] * 4

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
            waiting += [health.begin(now) for _ in range(health.available(now))]
            now += 0.001
            health.succeeded(waiting.pop(0), now)
            windows.append(health.window)
        assert max(windows) <= 64, "now and then a larger one is tried"
        assert sum(windows[1_000:]) / 9_000 <= 24

    def test_it_grows_again_when_the_endpoint_has_become_able_to_take_more(self) -> None:
        health, now = _health(), _HUGE
        waiting: list[Attempt] = []
        for answers in [1] * 3_000 + [50] * 5_000:
            waiting += [health.begin(now) for _ in range(health.available(now))]
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
        assert health.available(now) == 3
        for _ in range(5):
            now = _round(health, now)
        assert health.window == 3
        health.reconfigure(GOOGLES_OPTIONS, now=now)
        assert health.window == 3
        now = _round(health, now)
        assert health.window == 6


class TestPoison:
    """A message that always fails waits by itself; what the others get stays the same."""

    @pytest.mark.parametrize("fault", [Fault.REJECTED, Fault.GONE])
    def test_a_rejected_message_is_retried_after_100_ms_to_60_s(self, fault: Fault) -> None:
        health = _health()
        assert health.failed(health.begin(_HUGE), _HUGE, fault) == MessagePause(REJECTED_BACKOFF)
        assert [REJECTED_BACKOFF.delay(n).total_seconds() for n in (1, 2, 10, 20)] == [0.1, 0.2, 51.2, 60]
        assert health.available(_HUGE) == FIRST_WINDOW

    def test_one_that_fails_for_its_endpoint_is_retried_as_often_as_that_is_probed(self) -> None:
        health = _health()
        assert health.failed(health.begin(_HUGE), _HUGE, Fault.BROKEN) == MessagePause(ENDPOINT_BACKOFF)
        assert ENDPOINT_BACKOFF.delay(20).total_seconds() == PROBE_INTERVAL

    @pytest.mark.parametrize("fault", list(Fault))
    def test_its_second_failure_counts_for_it_while_others_succeed_whatever_the_status(self, fault: Fault) -> None:
        health, now = _health(), _round(_health(), _HUGE)
        now = _round(health, now)
        for _ in range(100):
            poison = health.begin(now, message="poison", is_retry=True)
            assert health.failed(poison, now, fault) == MessagePause(REJECTED_BACKOFF)
            health.succeeded(health.begin(now), now)
        assert health.window == 16
        assert health.breaker == "closed"

    def test_one_alone_never_holds_up_the_endpoint_however_often_it_fails(self) -> None:
        health = _health(_FRAGILE)
        for _ in range(1_000):
            health.failed(health.begin(_HUGE, message="poison", is_retry=True), _HUGE, Fault.REJECTED)
        assert (health.breaker, health.consecutive_failures) == ("closed", 1)
        assert health.available(_HUGE) == FIRST_WINDOW

    def test_a_failure_that_later_requests_have_overtaken_counts_for_the_message(self) -> None:
        """As of a message on which the endpoint hangs."""
        health = _health()
        hanging = [health.begin(_HUGE) for _ in range(7)]
        health.succeeded(health.begin(_HUGE), _HUGE + 0.01)
        for attempt in hanging:
            assert health.failed(attempt, _HUGE + 10) == MessagePause(REJECTED_BACKOFF)
        assert (health.window, health.consecutive_failures) == (9, 0)

    def test_if_all_fail_the_endpoint_backs_off_whatever_the_status(self) -> None:
        """And its messages wait for it, not for themselves: once it is back they are due."""
        health, now = _health(), _HUGE
        for _ in range(ALL_FAIL - 1):
            assert health.failed(health.begin(now), now, Fault.REJECTED) == MessagePause(REJECTED_BACKOFF)
            assert health.available(now) == FIRST_WINDOW
        assert health.failed(health.begin(now), now, Fault.REJECTED) == MessagePause(None)
        assert health.opens_at(now) == pytest.approx(now + 0.1)
        health.succeeded(health.begin(now + 0.1), now + 0.1)
        assert health.available(now + 0.1) == FIRST_WINDOW / 2

    def test_what_hangs_while_others_are_answered_does_not_use_up_the_window(self) -> None:
        health, now = _health(), _HUGE
        hanging, answered = 0, 0
        for _ in range(400):
            for attempt in [health.begin(now) for _ in range(health.available(now))]:
                if hanging < 900 and attempt.number % 2:
                    hanging += 1
                else:
                    health.succeeded(attempt, now + 0.002)
                    answered += 1
            now = health.opens_at(now + 0.002) or now + 0.01
            if answered >= 1_000:
                break
        assert answered >= 1_000
        assert now - _HUGE < 9, "before the first of them is overdue"

    def test_if_nothing_is_answered_what_hangs_counts(self) -> None:
        health = _health()
        for _ in range(FIRST_WINDOW):
            health.begin(_HUGE)
        assert health.available(_HUGE + 600) == 0
        assert health.opens_at(_HUGE + 600) is None

    def test_the_subscriptions_own_cap_counts_what_hangs(self) -> None:
        health = _health(PushOptions(max_outstanding_requests=3))
        for _ in range(2):
            health.begin(_HUGE)
        health.succeeded(health.begin(_HUGE), _HUGE + 0.001)
        assert health.available(_HUGE + 5) == 1


class TestRecentOutcomes:
    def test_the_share_is_that_of_the_last_64_within_a_minute(self) -> None:
        recent = RecentOutcomes()
        assert (recent.failing_share(0), recent.any_succeeded(0)) == (0, False)
        for _ in range(100):
            recent.note(0, Outcome.ENDPOINT_FAILED)
        assert (recent.failing_share(0), recent.any_succeeded(0)) == (1, False)
        for _ in range(16):
            recent.note(30, Outcome.SUCCEEDED)
        assert (recent.failing_share(30), recent.any_succeeded(30)) == (0.75, True)
        assert recent.failing_share(61) == 0
        assert not recent.any_succeeded(91)


class TestGone:
    def test_the_endpoint_is_gone_if_several_messages_say_so_without_a_success_in_between(self) -> None:
        health = _health()
        for _ in range(10):
            health.failed(health.begin(_HUGE, message="poison"), _HUGE, Fault.GONE)
        assert not health.failed_messages.are_gone
        for _ in range(GONE_AFTER - 2):
            health.failed(health.begin(_HUGE), _HUGE, Fault.GONE)
        health.succeeded(health.begin(_HUGE), _HUGE)
        for number in range(GONE_AFTER):
            assert not health.failed_messages.are_gone
            health.failed(health.begin(_HUGE, message=number), _HUGE, Fault.GONE)
        assert health.failed_messages.are_gone


class TestBackoff:
    def test_an_endpoint_that_fails_everything_is_probed_every_ten_seconds_in_the_end(self) -> None:
        health, now = _health(), _HUGE
        now = _down(health, now)
        starts = [now, *(now := _fail_once(health, now) for _ in range(10))]
        pauses = [round(after - before, 6) for before, after in pairwise(starts)]
        assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10, 10]

    def test_it_gets_at_most_15_requests_in_its_first_minute_and_7_in_each_later_one(self) -> None:
        """Besides those that were outstanding when it went down."""
        health, now = _health(), _HUGE
        for attempt in [health.begin(now) for _ in range(health.available(now))]:
            health.failed(attempt, now)
        starts = [now := _fail_once(health, now) for _ in range(60)]
        assert sum(start - _HUGE < 60 for start in starts) <= 15
        assert all(sum(begin <= start < begin + 60 for start in starts) <= 7 for begin in starts[10:])

    def test_it_counts_from_the_failure_not_from_the_start(self) -> None:
        health = _health()
        now = _down(health, _HUGE)
        began = _fail_once(health, now, latency=7)
        assert health.opens_at(began + 7) == pytest.approx(began + 7.2)

    def test_a_probe_that_is_not_answered_does_not_hold_up_the_next_one(self) -> None:
        health = _health()
        now = _down(health, _HUGE) + 1
        hanging = health.begin(now)
        assert health.available(now + 9) == 0
        assert health.opens_at(now) == now + PROBE_INTERVAL
        trying = health.begin(now + 10)
        assert health.available(now + 11) == 0
        health.succeeded(trying, now + 11)
        assert health.available(now + 11) >= 1
        health.failed(hanging, now + 600)
        assert health.consecutive_failures == 0

    def test_the_first_success_ends_it(self) -> None:
        health = _health()
        now = _down(health, _HUGE)
        for _ in range(20):
            now = _fail_once(health, now)
        now = health.opens_at(now) or now
        health.succeeded(health.begin(now), now)
        assert health.opens_at(now) is None
        assert health.available(now) >= 1
        now = _round(health, now)
        assert health.window >= 2

    def test_jitter_makes_a_pause_longer_by_a_tenth_at_most_and_never_more_than_the_longest(self) -> None:
        health = EndpointHealth(_NEVER_OPENS, now=0, jitter=lambda: 0.1)
        now = _down(health, 0.0)
        starts = [now, *(now := _fail_once(health, now) for _ in range(13))]
        assert starts[1] - starts[0] == pytest.approx(0.11)
        assert starts[-1] - starts[-2] == pytest.approx(PROBE_INTERVAL)


class TestRetryAfter:
    def test_nothing_starts_before_it(self) -> None:
        health = _health()
        health.failed(health.begin(_HUGE), _HUGE, retry_after=30)
        assert health.opens_at(_HUGE) == _HUGE + 30
        assert health.available(_HUGE + 29.999) == 0
        assert health.available(_HUGE + 30) > 0

    def test_the_later_of_two_holds_and_so_does_a_longer_backoff(self) -> None:
        health = _health()
        first, second = health.begin(_HUGE), health.begin(_HUGE)
        health.failed(first, _HUGE, retry_after=30)
        health.failed(second, _HUGE, retry_after=0.01)
        assert health.opens_at(_HUGE) == _HUGE + 30
        other = _health()
        now = _down(other, _HUGE)
        now = other.opens_at(now) or now
        other.failed(other.begin(now), now, retry_after=0.01)
        assert other.opens_at(now) == pytest.approx(now + 0.2)

    @pytest.mark.parametrize(
        ("asked", "waited"), [(1e12, MAX_RETRY_AFTER), (float("inf"), MAX_RETRY_AFTER), (-5, 0)]
    )
    def test_an_hour_is_the_longest_and_nonsense_is_nothing(self, asked: float, waited: float) -> None:
        health = _health()
        health.failed(health.begin(_HUGE), _HUGE, retry_after=asked)
        assert (health.opens_at(_HUGE) or _HUGE) == pytest.approx(_HUGE + waited)

    def test_while_others_succeed_one_message_asks_for_ten_seconds_at_most_and_a_second_one_for_more(self) -> None:
        health, now = _health(), _round(_health(), _HUGE)
        now = _round(health, now)
        health.failed(health.begin(now, message="a"), now, retry_after=3_000)
        assert health.opens_at(now) == now + PROBE_INTERVAL
        now += PROBE_INTERVAL
        health.failed(health.begin(now, message="b"), now, retry_after=3_000)
        assert health.opens_at(now) == now + 3_000

    def test_it_is_the_messages_own_if_the_failure_counts_for_the_message(self) -> None:
        health, now = _health(), _round(_health(), _HUGE)
        now = _round(health, now)
        pause = health.failed(health.begin(now, message="a", is_retry=True), now, retry_after=3_000)
        assert pause == MessagePause(REJECTED_BACKOFF, 3_000)
        assert health.available(now) > 0

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
        assert health.available(_HUGE) == 4
        for _ in range(4):
            health.succeeded(health.begin(_HUGE), _HUGE)
        assert health.available(_HUGE) == 0
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 0.25)
        assert health.available(_HUGE + 0.5) == 2
        assert health.available(_HUGE + 3_600) == 4

    def test_less_than_one_a_second_is_possible(self) -> None:
        health = _health(PushOptions(messages_per_second=0.01))
        assert health.available(_HUGE) == 1
        health.succeeded(health.begin(_HUGE), _HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 100)

    def test_a_digest_counts_its_messages_and_may_be_larger_than_a_seconds_worth(self) -> None:
        digest = Digest(max_messages=100, max_bytes=1_000_000, max_delay=timedelta(seconds=1))
        health = _health(PushOptions(messages_per_second=10, digest=digest))
        assert health.available(_HUGE) == 1
        health.succeeded(health.begin(_HUGE, messages=100), _HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 9.1)

    def test_another_rate_holds_from_the_change_on_and_gives_nothing_for_free(self) -> None:
        health = _health(PushOptions(messages_per_second=1_000))
        for _ in range(1_000):
            health.succeeded(health.begin(_HUGE), _HUGE)
        health.reconfigure(PushOptions(messages_per_second=2), now=_HUGE)
        assert health.opens_at(_HUGE) == pytest.approx(_HUGE + 0.5)
        health.reconfigure(PushOptions(), now=_HUGE)
        assert health.available(_HUGE) == FIRST_WINDOW


class TestCircuitBreaker:
    def test_it_opens_after_the_configured_failures_in_a_row_and_nothing_starts(self) -> None:
        health, now = _opened()
        assert health.consecutive_failures == 3
        assert health.available(now + 29) == 0
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
        assert health.available(now + 30) == 1
        assert health.breaker == "half_open"
        health.begin(now + 30)
        assert health.available(now + 59) == 0
        assert health.opens_at(now + 59) == now + 60, "the next one, if this is not answered"

    def test_if_it_succeeds_the_endpoint_starts_over_with_a_window_of_one(self) -> None:
        health, now = _opened()
        assert health.available(now + 30) == 1
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
            assert health.available(now) == 1
            health.failed(health.begin(now), now)
            assert health.breaker == "open"
            assert health.consecutive_failures == 3 + trial
            assert health.opens_at(now) == pytest.approx(now + 30)

    def test_a_trial_that_we_stopped_is_tried_again(self) -> None:
        health, now = _opened()
        assert health.available(now + 30) == 1
        health.abandoned(health.begin(now + 30), now + 31)
        assert health.breaker == "half_open"
        assert health.available(now + 31) == 1

    @pytest.mark.parametrize("late", ["while open", "while half open", "when closed again"])
    def test_what_began_before_it_opened_changes_nothing_any_more(self, late: str) -> None:
        health, now = _health(_FRAGILE), _HUGE
        old = [health.begin(now) for _ in range(6)]
        for attempt in old[:3]:
            health.failed(attempt, now)
        assert health.breaker == "open"
        if late != "while open":
            assert health.available(now + 30) == 1, "the trial goes whatever still hangs"
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

    @rule(
        share=st.floats(0.1, 1),
        full=st.booleans(),
        message=st.none() | st.integers(1, 12),
        is_retry=st.booleans(),
    )
    def start(self, share: float, full: bool, message: int | None, is_retry: bool) -> None:
        available = self.health.available(self.now)
        count = min(ceil(available * share), 30)
        for _ in range(count):
            messages = self.options.digest.max_messages if self.options.digest and full else 1
            self.outstanding.append(
                self.health.begin(self.now, messages=messages, message=message, is_retry=is_retry)
            )
            self.starts.append((self.now, messages))
            cap = self.options.max_outstanding_requests
            assert cap is None or self.health.outstanding <= cap or self.health.window == 1
        if count == available:
            assert self.health.available(self.now) == 0 or self.options.digest

    @precondition(lambda self: self.outstanding)
    @rule(
        data=st.data(),
        how=st.sampled_from(["succeeded", "abandoned", *Fault]),
        count=st.integers(1, 30),
    )
    def end(self, data: st.DataObject, how: str | Fault, count: int) -> None:
        for _ in range(min(count, len(self.outstanding))):
            attempt = self.outstanding.pop(data.draw(st.integers(0, len(self.outstanding) - 1)))
            if isinstance(how, Fault):
                self.health.failed(attempt, self.now, how)
            else:
                getattr(self.health, how)(attempt, self.now)

    @precondition(lambda self: self.outstanding)
    @rule(retry_after=st.floats(0, 10_000))
    def refuse_for_now(self, retry_after: float) -> None:
        """The endpoint waits, or the message does."""
        pause = self.health.failed(self.outstanding.pop(0), self.now, retry_after=retry_after)
        assert pause.seconds in (0, min(retry_after, MAX_RETRY_AFTER))

    @rule(seconds=st.floats(0, 100))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def wait_until_it_opens(self) -> None:
        opens = self.health.opens_at(self.now)
        if opens is not None:
            assert opens > self.now
            self.now = opens
            assert self.health.available(self.now) > 0, "opens_at is true"

    @rule()
    def recover(self) -> None:
        """Whatever happened: once everything has ended, successes bring full health, and soon."""
        for attempt in self.outstanding:
            self.health.abandoned(attempt, self.now)
        self.outstanding.clear()
        for _ in range(60):
            opens = self.health.opens_at(self.now)
            self.now = self.now if opens is None else opens
            attempts = [self.health.begin(self.now) for _ in range(min(2, self.health.available(self.now)))]
            assert attempts
            self.starts += [(self.now, 1)] * len(attempts)
            for attempt in attempts:
                self.health.succeeded(attempt, self.now)
        assert (self.health.breaker, self.health.consecutive_failures) == ("closed", 0)
        self.now += 3_600
        free = self.health.available(self.now)
        assert free == self.health.window or self.options.messages_per_second is not None
        assert free > 0

    @invariant()
    def no_state_is_dead(self) -> None:
        assert self.health.outstanding == len(self.outstanding)
        assert self.health.window >= 1
        available, opens = self.health.available(self.now), self.health.opens_at(self.now)
        if available:
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
