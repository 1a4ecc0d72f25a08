"""What is urgent has turns before the rest of its project, which keeps a fourth; others notice nothing (J4)."""

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.access.secrets.secrets import Secrets
from broker.core.pushing import urgent_first
from broker.core.pushing.endpoint import Endpoint
from broker.core.pushing.health.endpoint_health import EndpointHealth
from broker.core.pushing.health.failing_watch import FailingWatch
from broker.core.pushing.request.envelope import Envelope
from broker.core.pushing.urgent_first import UrgentFirst
from broker.fairness import fair_turns
from broker.fairness.fair_turns import URGENT, URGENT_TURNS, FairTurns, Path, TurnFor
from broker.model.push_config import PushConfig, PushOptions
from broker.model.subscription import Extensions, Subscription

LONG = 0.02


@dataclass(frozen=True)
class Asks:
    """Somebody of a project, who asks again whenever he had a turn."""

    project: str
    number: int
    urgent: bool

    def path(self, *, heeded: bool = True) -> Path:
        urgent = (URGENT,) if self.urgent and heeded else ()
        return (self.project, *urgent, self.number)


who = st.builds(Asks, st.sampled_from("abc"), st.integers(0, 5), st.booleans())
crowd = st.lists(who, min_size=2, max_size=16, unique=True)


def served(asks: list[Asks], count: int, at_once: int, *, heeded: bool = True) -> list[Asks]:
    """Who has the next turns, all of which cost the same."""
    turns, order, under_way = FairTurns[TurnFor[Asks]](at_once, long=1.0), list[Asks](), list[TurnFor[Asks]]()
    for each in asks:
        turns.ask(TurnFor(each.path(heeded=heeded), item=each))
    while len(order) < count:
        while (turn := turns.begin()) is not None:
            under_way.append(turn)
            order.append(turn.item)
        turn = under_way.pop(0)
        turns.end(turn, LONG)
        turns.ask(TurnFor(turn.item.path(heeded=heeded), item=turn.item))
    return order


@given(crowd, st.integers(1, 4))
def test_projects_have_the_turns_that_they_have_without_anything_urgent(asks: list[Asks], at_once: int) -> None:
    """But for who has less to ask for than there are slots."""
    heeded, unheeded = (Counter(e.project for e in served(asks, 400, at_once, heeded=h)) for h in (True, False))
    if min(Counter(each.project for each in asks).values()) > at_once:
        assert all(abs(heeded[project] - unheeded[project]) <= 2 * at_once for project in unheeded)


def rows_between(order: list[Asks], project: str) -> list[int]:
    """How many turns in a row what is urgent had, before each of the others."""
    rows = [0]
    for each in order:
        if each.project == project:
            if each.urgent:
                rows[-1] += 1
            else:
                rows.append(0)
    return rows[:-1]


@given(st.integers(1, 20), st.integers(1, 20))
def test_what_is_urgent_has_three_turns_of_four_and_the_others_wait_no_longer_than_for_these(
    urgent: int, others: int
) -> None:
    """However many ask; the others share what they have as they did."""
    asks = [Asks("a", number, urgent=number < urgent) for number in range(urgent + others)]
    order = served(asks, 4 * URGENT_TURNS * (urgent + others), 1)
    assert set(rows_between(order, "a")) == {URGENT_TURNS}
    had = Counter(each.number for each in order if not each.urgent)
    assert max(had.values()) - min(had.values()) <= 1
    assert len(had) == others


def test_what_comes_and_is_urgent_waits_for_no_turn_of_three_hundred_others() -> None:
    turns = FairTurns[TurnFor[str]](1, long=1.0)
    for number in range(300):
        turns.ask(TurnFor(("p", number), item="other"))
    turn = turns.begin()
    assert turn is not None
    turns.ask(TurnFor(("p", URGENT, 1), item="urgent"))
    turns.end(turn, LONG)
    first = turns.begin()
    assert first is not None
    assert first.item == "urgent"


def test_without_the_fourth_turn_the_others_would_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken out."""
    monkeypatch.setattr(fair_turns, "URGENT_TURNS", 10**9)
    asks = [Asks("a", number, urgent=number < 2) for number in range(3)]
    assert all(each.urgent for each in served(asks, 100, 1))


@given(st.lists(st.tuples(who, st.booleans()), max_size=60), st.integers(1, 4))
def test_everybody_who_asks_has_his_turn_and_is_forgotten_then(asks: list[tuple[Asks, bool]], at_once: int) -> None:
    turns = FairTurns[TurnFor[int]](at_once, long=0.5)
    had, under_way = list[int](), list[TurnFor[int]]()
    for number, (each, begins) in enumerate(asks):
        turns.ask(TurnFor(each.path(), item=number))
        if begins and (turn := turns.begin()) is not None:
            under_way.append(turn)
    while len(turns) or under_way:
        while (turn := turns.begin()) is not None:
            under_way.append(turn)
        turn = under_way.pop(0)
        had.append(turn.item)
        turns.end(turn, LONG)
    assert sorted(had) == list(range(len(asks)))
    assert (turns._root.tenants, turns._root.active) == ({}, 0)


def make_endpoint(each: Asks) -> Endpoint:
    options = PushOptions(urgent=each.urgent)
    subscription = Subscription(
        subscription_id=each.number,
        name=f"projects/{each.project}/subscriptions/s{each.number}{'-urgent' * each.urgent}",
        topic="projects/p/topics/t",
        push_config=PushConfig(endpoint="http://far.example/"),
        extensions=Extensions(push=options),
    )
    return Endpoint(
        subscription,
        EndpointHealth(options, now=0.0),
        Envelope(subscription, Secrets()),
        FailingWatch(timedelta(0)),
    )


def sent(asks: list[Asks], count: int) -> list[Asks]:
    """Whose requests are sent next, of endpoints that always have more to send."""
    waiting, known = UrgentFirst(), {make_endpoint(each): each for each in asks}
    for endpoint in known:
        waiting.add(endpoint)
        waiting.add(endpoint)
    assert len(waiting) == len(asks)
    order = []
    for _ in range(count):
        endpoint = waiting.pop()
        order.append(known[endpoint])
        waiting.add(endpoint)
    while waiting:
        waiting.pop()
    assert not waiting._projects
    return order


@given(crowd)
def test_requests_of_projects_are_sent_in_the_order_that_they_have_without_anything_urgent(
    asks: list[Asks],
) -> None:
    plain = [Asks(each.project, number, urgent=False) for number, each in enumerate(asks)]
    assert [each.project for each in sent(asks, 60)] == [each.project for each in sent(plain, 60)]


@given(crowd)
def test_requests_that_are_urgent_are_sent_first_and_the_others_in_every_fourth_turn(asks: list[Asks]) -> None:
    order = sent(asks, 200)
    for project in {each.project for each in asks}:
        if {each.urgent for each in asks if each.project == project} == {True, False}:
            assert set(rows_between(order, project)) == {URGENT_TURNS}


def test_without_the_fourth_turn_only_urgent_requests_would_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken out."""
    monkeypatch.setattr(urgent_first, "URGENT_TURNS", 10**9)
    assert all(each.urgent for each in sent([Asks("a", number, urgent=number < 2) for number in range(3)], 100))
