"""What can be held is shared: one alone gets most of it, and whoever comes finds room (M1)."""

from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.config import AppConfig
from broker.core.publishing import publish_coalescer
from broker.core.pushing import slots
from broker.fairness import resource_turns
from broker.fairness.shared_capacity import ALPHA, Over, Path, SharedCapacity


def fill(shared_capacity: SharedCapacity, *paths: Path) -> int:
    """Returns how much was taken, one by one, until there was no more."""
    taken = 0
    while shared_capacity.take(*paths) is None:
        taken += 1
    return taken


def take_all(shared_capacity: SharedCapacity, path: Path, most: int) -> None:
    assert shared_capacity.take(path, amount=min(most, shared_capacity.available(path))) is None


def jain(shares: list[int]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


def test_alone_a_project_gets_four_fifths_of_all_and_a_subscription_three_quarters() -> None:
    assert fill(SharedCapacity(20_000), ("p",)) == 16_000
    assert fill(SharedCapacity(20_000), ("p", "s")) == pytest.approx(20_000 * 16 / 21, abs=1)


@given(st.integers(0, 30))
def test_of_few_whoever_has_none_gets_the_last(capacity: int) -> None:
    shared_capacity = SharedCapacity(capacity)
    for number in range(capacity):
        assert shared_capacity.take((f"p{number}", "s")) is None
    assert shared_capacity.take(("late", "s")) == Over((), capacity, capacity)


@given(st.integers(4_000, 20_000), st.lists(st.integers(1, 30_000), min_size=1, max_size=4))
def test_whoever_comes_finds_capacity_whatever_the_others_have_taken(capacity: int, wants: list[int]) -> None:
    """Four take all that they can get, one after the other; so what is left for the next is a fifth each time."""
    shared_capacity = SharedCapacity(capacity)
    for number, want in enumerate(wants):
        take_all(shared_capacity, (f"greedy {number}", "s"), want)
    assert shared_capacity.available(("new", "s")) >= capacity // 5 ** (len(wants) + 1) > 0


def test_within_a_project_one_subscription_leaves_capacity_for_the_others() -> None:
    shared_capacity = SharedCapacity(1_000)
    fill(shared_capacity, ("p", "greedy"))
    assert fill(shared_capacity, ("p", "other")) > 10
    assert fill(shared_capacity, ("q", "s")) > 100


CONFIG = AppConfig(database_url="")
KINDS = {  # of what is held, and about how much at a time
    "waiting pull": (CONFIG.max_waiting_pulls, 1),
    "call under way about a resource": (resource_turns.MAX_UNDER_WAY, 1),
    "request to an endpoint": (slots.MAX_OPEN_REQUESTS, 1),
    "body of a request": (CONFIG.request_memory_mb * 1_000_000, 100_000),
    "publish that waits": (publish_coalescer.MAX_QUEUED_BYTES, 70_000),
}


def _shares(capacity: int, amount: int, alpha: float = ALPHA, rounds: int = 300) -> list[int]:
    """What tenants have held in all, who always want more, and of whom some try five times as often as others.

    So many that there is room for four things each, a thousand at the most.
    """
    shared_capacity, tenants, chance = (
        SharedCapacity(capacity, alpha=alpha),
        min(1_000, capacity // amount // 4),
        Random(7),
    )
    tries = chance.choices(range(tenants), [1 + number % 5 for number in range(tenants)], k=rounds * tenants)
    leaving: list[tuple[float, Path]] = []  # heap
    had = [0] * tenants
    for now, number in enumerate(tries):
        while leaving and leaving[0][0] <= now:
            shared_capacity.give_back(heappop(leaving)[1], amount=amount)
        path = (f"p{number}", "s")
        for _ in range(shared_capacity.available(path) // amount):
            assert shared_capacity.take(path, amount=amount) is None
            heappush(leaving, (now + chance.expovariate(1 / 20 / tenants), path))
            had[number] += now > 60 * tenants  # at first one has nearly all
    return had


# Seconds of a processor each: the first with every run, the others with those of CI.
_EACH_KIND = [
    kind if number == 0 else pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.ci])
    for number, kind in enumerate(KINDS)
]


@pytest.mark.parametrize("kind", _EACH_KIND)
def test_equal_tenants_hold_equal_shares_of_each_kind_however_often_they_try(kind: str) -> None:
    assert jain(_shares(*KINDS[kind])) >= 0.95


@pytest.mark.parametrize("kind", _EACH_KIND)
def test_shares_are_not_equal_without_a_bound_on_what_is_free(kind: str) -> None:
    """The rule taken out."""
    assert jain(_shares(*KINDS[kind], alpha=1_000_000, rounds=120)) < 0.9


def test_a_thousand_that_come_together_get_equal_shares() -> None:
    shared_capacity = SharedCapacity(20_000)
    paths = [(f"p{number}", "s") for number in range(1_000)]
    for _ in range(50):
        for path in paths:
            shared_capacity.take(path)
    assert jain([shared_capacity.held(path) for path in paths]) >= 0.95
    assert shared_capacity.total >= 15_000


def test_without_a_bound_on_what_is_free_the_first_takes_all() -> None:
    """The rule taken out."""
    shared_capacity = SharedCapacity(100, alpha=1_000_000)
    assert fill(shared_capacity, ("greedy", "s")) == 100
    assert shared_capacity.take(("new", "s")) is not None


def test_who_held_much_when_he_was_alone_gets_no_more_until_he_has_his_part() -> None:
    shared_capacity = SharedCapacity(100)
    fill(shared_capacity, ("first",))
    fill(shared_capacity, ("second",))
    assert shared_capacity.take(("first",)) is not None
    for _ in range(60):
        shared_capacity.give_back(("first",))
    assert fill(shared_capacity, ("second",)) > 20
    assert shared_capacity.take(("first",)) is None


def test_who_invents_projects_is_held_by_what_he_cannot_invent() -> None:
    shared_capacity = SharedCapacity(1_000)
    connection = ("one connection",)
    for number in range(2_000):
        shared_capacity.take((f"invented {number}", "s"), connection)
    assert shared_capacity.held(connection) == shared_capacity.total == 800
    assert shared_capacity.take(("new", "s"), ("another connection",)) is None


def test_a_refusal_says_who_has_how_much_of_how_much_and_takes_nothing() -> None:
    shared_capacity = SharedCapacity(100)
    for _ in range(80):
        shared_capacity.take(("p",), ("c",))
    assert shared_capacity.take(("q",), ("c",)) == Over(("c",), 80, 80)
    assert shared_capacity.take(("p", "s"), ("d",)) == Over(("p",), 80, 80)
    assert (shared_capacity.total, shared_capacity.held(("q",)), shared_capacity.held(("d",))) == (80, 0, 0)


calls = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from("xy"), st.integers(1, 40)), max_size=40
)


@given(st.integers(0, 200), st.floats(1, 8), calls)
def test_many_at_once_are_taken_if_and_only_if_they_could_be_one_by_one(
    capacity: int, alpha: float, asked: list[tuple[str, str, int]]
) -> None:
    at_once, one_by_one = SharedCapacity(capacity, alpha=alpha), SharedCapacity(capacity, alpha=alpha)
    held: list[tuple[Path, int]] = []
    for project, subscription, amount in asked:
        path = (project, subscription)
        available = at_once.available(path)
        refused = at_once.take(path, amount=amount) is not None
        assert refused == (available < amount)
        taken = 0
        while taken < amount and one_by_one.take(path) is None:
            taken += 1
        assert taken == min(available, amount)
        if refused:
            one_by_one.give_back(path, amount=taken)
        else:
            held.append((path, amount))
        assert at_once.total == one_by_one.total <= capacity
    for path, amount in held:
        at_once.give_back(path, amount=amount)
    assert at_once.total == 0
    assert not at_once._held


@given(
    st.integers(0, 2_000),
    st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from("st"), st.integers(0, 600)), max_size=12),
    st.sampled_from([1.0, 1.5, 4.0]),
)
def test_what_is_taken_without_a_look_at_shares_is_within_them(
    capacity: int, wants: list[tuple[str, str, int]], alpha: float
) -> None:
    """Where plenty is free nobody's share is worked out; the answer is the same."""
    shared_capacity = SharedCapacity(capacity, alpha=alpha)
    for project, subscription, amount in wants:
        available = shared_capacity.available((project, subscription))
        assert (shared_capacity.take((project, subscription), amount=amount) is None) == (amount <= available)
