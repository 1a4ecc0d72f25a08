"""Rates that several processes keep together, as arithmetic on times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.features.quotas.quota import NO_QUOTAS, UNLIMITED, ProjectQuotas, parse_limits, parse_rates
from broker.features.quotas.quota_bucket import Metered, QuotaBucket, QuotaGauge
from broker.model.errors import InvalidArgument, QuotaExceeded

BALANCE = 0.1  # as features/quotas/quotas.py
RATES = st.integers(1, 100_000)


class Shared:
    """The bucket of all, as balance_quotas.sql keeps it, and the parts of some processes."""

    def __init__(self, rate: int, processes: int) -> None:
        self.rate = rate
        self.held, self.at, self.now = float(rate), 0.0, 0.0
        self.parts = [QuotaBucket(rate, processes=processes, now=0.0) for _ in range(processes)]
        self.passed = 0.0

    def try_to_take(self, part: int, amount: float) -> bool:
        bucket = self.parts[part]
        if bucket.wait(self.now) > 0:
            return False
        bucket.take(amount, self.now)
        self.passed += amount
        return True

    def balance(self) -> None:
        for bucket in self.parts:
            if bucket.has_much_unreported(self.now):
                self.held = min(self.rate, self.held + (self.now - self.at) * self.rate) - bucket.report()
                self.at = self.now
                bucket.balanced(self.held, processes=len(self.parts), now=self.now)

    def run(self, seconds: float, busy: list[int], amount: float) -> None:
        """The busy parts try to take the amount every 10 ms, as often as they can."""
        for step in range(round(seconds * 100)):
            self.now += 0.01
            for part in busy:
                while self.try_to_take(part, amount):
                    pass
            if step % 10 == 0:
                self.balance()


@given(
    rate=RATES,
    steps=st.lists(st.tuples(st.floats(0, 3), st.integers(0, 5), st.integers(1, 1_000), st.booleans())),
    processes=st.integers(1, 5),
)
def test_all_processes_together_take_no_more_than_the_rate_a_burst_of_a_second_and_a_debt(
    rate: int, steps: list[tuple[float, int, int, bool]], processes: int
) -> None:
    shared = Shared(rate, processes)
    for pause, part, amount, balance in steps:
        shared.now += min(pause, BALANCE)
        shared.try_to_take(part % processes, amount)
        if balance or pause >= BALANCE:
            shared.balance()
    # What is taken before word of it goes round: of each process its part, and one request more.
    most = rate * (shared.now + 2) + 1_000 * processes
    assert shared.passed <= most * 1.001


@settings(max_examples=10)
@given(rate=RATES, processes=st.integers(1, 8), amount=st.sampled_from([1, 7, 100]))
def test_whoever_is_busy_alone_gets_nearly_all_of_the_rate(rate: int, processes: int, amount: int) -> None:
    rate *= 100
    shared = Shared(rate, processes)
    shared.run(3, [0], amount * rate / 100_000)
    before = shared.passed
    shared.run(5, [0], amount * rate / 100_000)
    assert shared.passed - before == pytest.approx(5 * rate, rel=0.05)


@settings(max_examples=10)
@given(processes=st.integers(2, 8), rate=RATES)
def test_busy_processes_share_the_rate_evenly_and_exactly(processes: int, rate: int) -> None:
    shared = Shared(rate, processes)
    everybody = list(range(processes))
    shared.run(3, everybody, rate / 1_000)
    before = shared.passed
    shared.run(5, everybody, rate / 1_000)
    assert shared.passed - before == pytest.approx(5 * rate, rel=0.05)


@given(rate=RATES, amounts=st.lists(st.integers(1, 100_000), min_size=1, max_size=20))
def test_who_comes_back_after_the_wait_passes_and_one_who_comes_earlier_does_not(
    rate: int, amounts: list[int]
) -> None:
    bucket, now = QuotaBucket(rate, processes=1, now=0.0), 0.0
    for amount in amounts:
        now += bucket.wait(now)
        assert bucket.wait(now) == 0
        bucket.take(amount, now)
        if (wait := bucket.wait(now)) > 0.01:
            assert bucket.wait(now + wait * 0.9) > 0


@given(rate=RATES, taken=st.integers(0, 200_000), held=st.floats(-200_000, 100_000), more=st.integers(0, 1_000))
def test_what_could_not_be_told_is_told_later_and_what_came_meanwhile_is_not_lost(
    rate: int, taken: int, held: float, more: int
) -> None:
    bucket = QuotaBucket(rate, processes=2, now=0.0)
    bucket.take(taken, 0.0)
    assert bucket.report() == taken
    bucket.take(more, 0.0)
    bucket.unreport()
    assert bucket.report() == taken + more
    bucket.take(more, 0.1)
    bucket.balanced(min(held, rate), processes=2, now=0.1)
    assert bucket.left(0.1) <= max(min(held, rate), 0) / 2 - more + 1e-6
    assert bucket.report() == more


def test_who_is_far_from_the_limit_tells_of_little_seldom_and_of_much_at_once() -> None:
    bucket = QuotaBucket(1_000, processes=2, now=0.0)
    assert not bucket.has_much_unreported(10.0)  # nothing to tell
    bucket.take(25, 0.1)
    assert not bucket.has_much_unreported(0.1)  # a twentieth of its part
    assert bucket.has_much_unreported(1.0)
    bucket.take(1, 0.1)
    assert bucket.has_much_unreported(0.1)
    bucket.report()
    bucket.balanced(974, processes=2, now=0.2)
    bucket.take(1, 0.3)
    assert not bucket.has_much_unreported(1.1)
    assert bucket.has_much_unreported(1.2)


def test_a_limit_of_nothing_lets_nothing_pass() -> None:
    bucket = QuotaBucket(0, processes=1, now=0.0)
    assert bucket.wait(1_000.0) > 0
    bucket.balanced(-5.0, processes=1, now=1_000.0)
    assert bucket.wait(2_000.0) > 0


def test_what_is_refused_by_one_bucket_takes_from_none() -> None:
    wide, narrow = (QuotaBucket(rate, processes=1, now=0.0) for rate in (1_000, 1))
    gauge = QuotaGauge(
        [
            Metered("publishMessages", "projects/p", "", 1, wide),
            Metered("publishBytes", "projects/p", "user:a@b.c", 2, narrow),
        ]
    )
    gauge.check(0.0)
    gauge.take(0.0, requests=1, messages=1, size=50)
    left = wide.left(0.0)
    with pytest.raises(QuotaExceeded, match=r"publishBytes of principal user:a@b.c in project p is at 50 of 1 "):
        gauge.check(0.0)
    assert wide.left(0.0) == left
    gauge.check(0.0, requests_alone=True)


def test_limits_are_those_set_for_the_project_and_else_the_defaults() -> None:
    defaults = ProjectQuotas({"topics": 5, "publishMessages": 10}, {"publishBytes": 7})
    assert NO_QUOTAS.over(defaults) == defaults
    own = NO_QUOTAS.changed({"topics": UNLIMITED, "publishMessages": 3}, {})
    assert own.over(defaults) == ProjectQuotas({"publishMessages": 3}, {"publishBytes": 7})
    assert own.changed({"topics": None, "publishMessages": None}, {}) == NO_QUOTAS


@pytest.mark.parametrize(
    ("limits", "principal_limits", "field"),
    [
        ({"topic": 1}, {}, "limits.topic "),
        ({"topics": -2}, {}, "limits.topics=-2"),
        ({"topics": 2**53}, {}, "limits.topics="),
        ({}, {"topics": 1}, "principalLimits.topics "),
    ],
)
def test_a_quota_that_cannot_be_is_refused_by_its_name(
    limits: dict[str, int | None], principal_limits: dict[str, int | None], field: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        NO_QUOTAS.changed(limits, principal_limits)
    assert field in refused.value.message


def test_settings_give_limits_by_name() -> None:
    assert parse_limits("publishMessages=10, topics = 0,") == {"publishMessages": 10, "topics": 0}
    assert parse_limits("") == {}
    for wrong in ("publishMessages", "messages=1", "topics=-1", "topics=1.5", "topics=1=2"):
        with pytest.raises(ValueError, match=wrong):
            parse_limits(wrong)
    with pytest.raises(ValueError, match="no rate"):
        parse_rates("topics=1")
