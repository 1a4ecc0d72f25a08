"""Turns are shared by what they cost: nobody waits longer than his share allows, whatever others do (M1)."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.app.config import AppConfig
from broker.app.messages import ACK_FLUSHES_AT_ONCE
from broker.core.acking import ack_coalescer
from broker.core.claiming import claim_scheduler
from broker.core.publishing import publish_coalescer
from broker.fairness import resource_turns
from broker.fairness.fair_turns import FairTurns, TurnFor
from broker.fairness.tenants import Tenants

LONG = 0.02


@dataclass
class Tenant:
    """Asks for `at_once` turns at a time, one for each of what it has, and for each again when it has ended.

    `costs` of its turns, over and over.
    """

    name: str
    costs: list[float]
    at_once: int = 1
    turns: int = 0

    def cost(self) -> float:
        self.turns += 1
        return self.costs[self.turns % len(self.costs)]


@dataclass
class Slots:
    """Serves turns on a clock of its own."""

    at_once: int = 1
    long: float = LONG
    most: float = inf
    charge: Callable[[float], float] = lambda cost: cost
    contended: bool = False
    now: float = 0.0
    served: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0

    def __post_init__(self) -> None:
        tenants = Tenants(lambda: self.now) if self.contended else None
        self.turns = FairTurns[TurnFor[tuple[Tenant, int]]](
            self.at_once, long=self.long, max_charged=self.most, tenants=tenants
        )
        self._ends: list[tuple[float, int, float, TurnFor[tuple[Tenant, int]]]] = []
        self._begun = 0

    def ask(self, tenant: Tenant) -> None:
        for n in range(tenant.at_once):
            self.turns.ask(TurnFor((tenant.name, n), item=(tenant, n)))

    def begin(self) -> list[str]:
        """Returns whose turns have begun."""
        begun = []
        while (turn := self.turns.begin()) is not None:
            tenant, _ = turn.item
            cost = tenant.cost()
            self._begun += 1
            heapq.heappush(self._ends, (self.now + cost, self._begun, cost, turn))
            begun.append(tenant.name)
        self.most_at_once = max(self.most_at_once, len(self._ends))
        return begun

    def end(self, *, again: bool = True) -> None:
        """The next turn ends, and asks again."""
        self.now, _, cost, turn = heapq.heappop(self._ends)
        tenant, n = turn.item
        self.turns.end(turn, self.charge(cost))
        self.served[tenant.name] += cost  # type: ignore[assignment]
        if again:
            self.turns.ask(TurnFor((tenant.name, n), item=(tenant, n)))

    def end_invented(self) -> None:
        """As `end`, but who is invented does not come again."""
        self.end(again=not self._ends[0][3].item[0].name.startswith("invented"))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.begin()
            self.end()

    def drain(self) -> None:
        while self._ends:
            self.end(again=False)
            self.begin()


def jain(shares: list[float]) -> float:
    """1: all have the same; 1/n: one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


costs = st.lists(st.floats(0.005, 0.5), min_size=1, max_size=5)


@given(st.integers(1, 8), st.lists(st.tuples(costs, st.integers(1, 50)), min_size=2, max_size=8), st.booleans())
def test_who_always_wants_gets_as_much_as_any_other_but_for_a_few_turns(
    at_once: int, tenants: list[tuple[list[float], int]], contended: bool
) -> None:
    """However many turns the others ask for, and however long theirs take."""
    slots = Slots(at_once, contended=contended)
    for number, (each, asks) in enumerate(tenants):
        slots.ask(Tenant(str(number), each, at_once=max(asks, at_once)))
    slots.run(8.0)
    served = [slots.served[str(number)] for number in range(len(tenants))]
    longest = max(max(each) for each, _ in tenants)
    assert max(served) - min(served) <= 2 * (at_once + 1) * longest


@given(st.integers(2, 8), st.floats(LONG, 2.0))
def test_whoever_comes_begins_at_once_though_another_has_long_turns_without_end(at_once: int, each: float) -> None:
    slots = Slots(at_once)
    slots.ask(Tenant("greedy", [each], at_once=40))
    slots.run(10.0)
    slots.begin()
    slots.ask(Tenant("new", [0.001]))
    assert slots.begin() == ["new"]


@given(st.integers(1, 8), st.integers(1, 60), costs, st.booleans())
def test_whoever_comes_waits_for_one_turn_of_each_other_at_most(
    at_once: int, others: int, each: list[float], contended: bool
) -> None:
    slots = Slots(at_once, contended=contended)
    for number in range(others):
        slots.ask(Tenant(str(number), each, at_once=20))
    slots.run(2.0)
    slots.begin()
    slots.ask(Tenant("new", [0.001]))
    begun = slots.begin()
    while "new" not in begun:
        slots.end()
        begun += slots.begin()
    assert begun.index("new") <= others + at_once


def test_who_is_there_goes_on_though_newcomers_never_end() -> None:
    """Tenants that are invented for one turn each, twenty at a time."""
    slots = Slots(3)
    slots.ask(Tenant("steady", [0.1], at_once=10))
    for number in range(2_000):
        slots.ask(Tenant(f"invented {number}", [0.1]))
        if number >= 20:
            slots.begin()
            slots.end_invented()
    assert slots.served["steady"] / 0.1 >= 2_000 / 21 / 10


ENGINE = AppConfig(database_url="")
RESOURCES = (resource_turns.LONG_SECONDS, resource_turns.MOST_CHARGED_SECONDS)
KINDS = {  # of calls: as broker/app/messages.py and the parts have them, and about how long their turns take
    "publish": (
        ENGINE.pool_size - 2,
        publish_coalescer.LONG_SECONDS,
        publish_coalescer.MOST_CHARGED_SECONDS,
        0.005,
    ),
    "pull": (ENGINE.pool_size - 2, claim_scheduler.LONG_SECONDS, inf, 0.005),
    "push": (2, claim_scheduler.LONG_SECONDS, inf, 0.010),
    "ack, extension": (ACK_FLUSHES_AT_ONCE, 0.0, ack_coalescer.MOST_CHARGED_SECONDS, 0.005),
    "resource call": (
        resource_turns.AT_ONCE,
        resource_turns.LONG_SECONDS,
        resource_turns.MOST_CHARGED_SECONDS,
        0.1,
    ),
    "look": (resource_turns.INSPECTIONS_AT_ONCE, *RESOURCES, 0.3),
}


# Seconds of a processor each: the first with every run, the others with those of CI.
_EACH_KIND = [
    kind if number == 0 else pytest.param(kind, marks=[pytest.mark.slow, pytest.mark.ci])
    for number, kind in enumerate(KINDS)
]


@pytest.mark.parametrize("kind", _EACH_KIND)
def test_a_thousand_equal_tenants_get_equal_shares_of_each_kind_of_call(kind: str) -> None:
    """However many of them each has waiting."""
    at_once, long, most, usual = KINDS[kind]
    slots = Slots(at_once, long, most, contended=True)
    for number in range(1_000):
        slots.ask(Tenant(str(number), [usual, usual / 10, usual / 2], at_once=1 + number % 20))
    slots.run(20 * 1_000 * usual / at_once)
    assert jain([slots.served[str(number)] for number in range(1_000)]) >= 0.95


def test_shares_are_not_equal_if_turns_are_charged_alike_whatever_they_cost() -> None:
    """The rule taken out."""
    slots = Slots(6, charge=lambda _: 0.001)
    for number in range(100):
        slots.ask(Tenant(str(number), [0.5 if number % 10 == 0 else 0.001], at_once=5))
    slots.run(120.0)
    assert jain([slots.served[str(number)] for number in range(100)]) < 0.5


def test_alone_a_tenant_gets_all_slots_and_all_but_one_if_its_turns_are_long() -> None:
    slots = Slots(6)
    slots.ask(Tenant("quick", [0.001], at_once=40))
    slots.run(1.0)
    assert slots.most_at_once == 6
    slots.drain()
    slots.ask(Tenant("slow", [0.1], at_once=40))
    slots.begin()
    slots.end()  # now it is known
    for _ in range(20):
        slots.end()
        slots.begin()
    assert slots.turns.under_way == 5


@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0.001, 0.3)), min_size=2, max_size=80),
)
def test_no_project_has_more_than_a_third_of_the_turns_at_once_while_another_is_there(
    at_once: int, asks: list[tuple[str, float]]
) -> None:
    """But for those that it had before the other came."""
    now = 0.0
    tenants = Tenants(lambda: now)
    turns = FairTurns[TurnFor[tuple[str, float]]](at_once, long=LONG, tenants=tenants)
    under_way = list[TurnFor[tuple[str, float]]]()
    for project, cost in asks:
        turns.ask(TurnFor((project,), item=(project, cost)))
    while len(turns) or under_way:
        before, alone = Counter(turn.item[0] for turn in under_way), not tenants.is_contended()
        turn = turns.begin()
        if turn is not None:
            under_way.append(turn)
            assert alone or before[turn.item[0]] < max(at_once // 3, 1)
            continue
        assert under_way, "there is a slot and somebody waits"
        turn = under_way.pop(0)
        now += turn.item[1]
        turns.end(turn, turn.item[1])


def test_who_is_alone_again_has_all_turns_a_second_later() -> None:
    slots = Slots(6, contended=True)
    slots.ask(Tenant("steady", [0.01], at_once=40))
    slots.run(0.1)
    assert slots.turns.under_way == 5  # one has just ended
    slots.ask(Tenant("guest", [0.01]))
    slots.begin()
    while slots.served["guest"] == 0:
        slots.end(again=False)
        slots.begin()
    slots.ask(Tenant("steady", [0.01], at_once=40))
    slots.run(0.5)
    slots.begin()
    assert slots.turns.under_way == 2
    slots.run(1.0)
    slots.begin()
    assert slots.turns.under_way == 6


def test_one_slot_is_everybodys() -> None:
    slots = Slots(1)
    slots.ask(Tenant("a", [1.0], at_once=3))
    slots.ask(Tenant("b", [1.0], at_once=3))
    slots.run(100.0)
    assert slots.served["a"] == slots.served["b"] == 50


def test_who_was_away_has_saved_up_nothing() -> None:
    slots = Slots(2)
    slots.ask(Tenant("steady", [0.1], at_once=2))
    slots.run(1_000.0)
    slots.ask(Tenant("back", [0.1], at_once=2))
    slots.served.clear()
    slots.run(10.0)
    assert slots.served["back"] == pytest.approx(slots.served["steady"], abs=0.5)


def test_who_leaves_for_a_moment_after_each_turn_still_pays_for_it() -> None:
    """Its record is kept for as long as it has used more than the others."""
    turns = FairTurns[TurnFor[str]](1, long=LONG)
    used = Counter[str]()
    for _ in range(3):
        turns.ask(TurnFor(("steady", 0), item="steady"))
    turns.ask(TurnFor(("greedy", 0), item="greedy"))
    for _ in range(1_000):
        turn = turns.begin()
        assert turn is not None
        cost = 1.0 if turn.item == "greedy" else 0.1
        turns.end(turn, cost)
        used[turn.item] += cost  # type: ignore[assignment]
        turns.ask(TurnFor((turn.item, 0), item=turn.item))
    assert used["greedy"] <= used["steady"] + 2


def test_within_a_project_turns_are_shared_in_the_same_way() -> None:
    turns = FairTurns[TurnFor[str]](1, long=LONG)
    used = Counter[str]()
    costs = {"slow": 1.0, "quick": 0.1, "neighbour": 0.5}
    paths = {"slow": ("p", 1), "quick": ("p", 2), "neighbour": ("q", 1)}
    for name in costs:
        turns.ask(TurnFor(paths[name], item=name))
        turns.ask(TurnFor(paths[name], item=name))
    for _ in range(2_000):
        turn = turns.begin()
        assert turn is not None
        turns.end(turn, costs[turn.item])
        used[turn.item] += costs[turn.item]  # type: ignore[assignment]
        turns.ask(TurnFor(paths[turn.item], item=turn.item))
    assert used["slow"] == pytest.approx(used["quick"], rel=0.05)
    assert used["neighbour"] == pytest.approx(used["slow"] + used["quick"], rel=0.05)


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.floats(0, 1)), max_size=60), st.integers(1, 4)
)
def test_everybody_who_asks_has_his_turn_and_is_forgotten_then(
    asks: list[tuple[str, int, float]], at_once: int
) -> None:
    turns = FairTurns[TurnFor[int]](at_once, long=0.5)
    had = []
    under_way = []
    for number, (project, consumer, _) in enumerate(asks):
        turns.ask(TurnFor((project, consumer), item=number))
        if number % 3 == 0 and (turn := turns.begin()) is not None:
            under_way.append(turn)
    while len(turns) or under_way:
        while (turn := turns.begin()) is not None:
            under_way.append(turn)
        assert under_way, "there is a slot and somebody waits"
        assert turns.under_way == len(under_way) <= at_once
        turn = under_way.pop(0)
        had.append(turn.item)
        turns.end(turn, asks[turn.item][2])
    assert sorted(had) == list(range(len(asks)))
    assert not turns._root.tenants


def test_tenants_that_are_invented_leave_nothing_behind_while_others_go_on() -> None:
    slots = Slots(2)
    slots.ask(Tenant("steady", [0.01]))
    for number in range(3_000):
        slots.ask(Tenant(f"invented {number}", [0.01]))
        slots.begin()
        slots.end_invented()
    for _ in range(1_000):
        slots.begin()
        slots.end_invented()
    assert len(slots.turns._root.tenants) <= 3
    assert len(slots.turns._root.ready) + len(slots.turns._root.in_debt) <= 10


def test_who_had_to_wait_within_a_turn_pays_for_no_more_than_the_most() -> None:
    """Else it would have no turn until each of the others has used as much."""
    turns = FairTurns[TurnFor[str]](1, long=LONG, max_charged=0.1)
    turns.ask(TurnFor(("slow",), item="slow"))
    turns.ask(TurnFor(("busy",), item="busy"))
    first = turns.begin()
    assert first is not None
    assert first.item == "slow"
    turns.ask(TurnFor(("slow",), item="slow"))
    turns.end(first, 60.0)
    between = 0
    while (turn := turns.begin()) is not None and turn.item == "busy":
        between += 1
        turns.ask(TurnFor(("busy",), item="busy"))
        turns.end(turn, 0.01)
    assert between <= 11


@given(st.integers(1, 3), st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([0.001, 0.5])), max_size=20))
def test_who_comes_first_is_counted_as_if_others_had_been_there_already(
    at_once: int, wants: list[tuple[str, float]]
) -> None:
    """One who is alone is not counted, until somebody joins him: the order is that of a crowd."""
    alone, in_crowd = FairTurns[TurnFor[str]](at_once, long=LONG), FairTurns[TurnFor[str]](at_once, long=LONG)
    for turns in (alone, in_crowd):
        turns.ask(TurnFor(("first",), item="first"))
    in_crowd.ask(TurnFor(("first",), item="again"))
    begun = [turns.begin() for turns in (alone, in_crowd)]
    alone.ask(TurnFor(("first",), item="again"))
    orders = []
    for turns, first in zip((alone, in_crowd), begun, strict=True):
        assert first is not None
        assert (len(turns), turns.under_way) == (1, 1)
        for name, _ in wants:
            turns.ask(TurnFor((name,), item=name))
        costs = dict(wants)
        turns.end(first, 0.25)
        order, under_way = [], []
        while len(turns) or under_way:
            while (turn := turns.begin()) is not None:
                under_way.append(turn)
                order.append(turn.item)
            turn = under_way.pop(0)
            turns.end(turn, costs.get(turn.item, 0.25))
        orders.append(order)
        assert (len(turns), turns.under_way) == (0, 0)
    assert orders[0] == orders[1]


def test_a_project_whose_turn_is_withdrawn_waits_no_more() -> None:
    turns = FairTurns[TurnFor[str]](2, long=LONG)
    asked = [TurnFor((name,), item=name) for name in ("a", "b", "a", "b")]
    for each in asked:
        turns.ask(each)
    assert [turn.item for _ in range(2) if (turn := turns.begin()) is not None] == ["a", "b"]
    turns.withdraw(asked[2])
    assert len(turns) == 1
    turns.end(asked[1], 1.0)
    assert turns.begin() is asked[3]
    assert turns.begin() is None


def test_a_lone_turn_that_is_withdrawn_is_not_begun() -> None:
    turns = FairTurns[TurnFor[str]](1, long=LONG)
    turns.ask(lone := TurnFor(("a",), item="a"))
    turns.withdraw(lone)
    assert (len(turns), turns.begin()) == (0, None)
