"""Waiting for a fair turn: however a slot is left, no turn stays taken and nobody who waits is forgotten (M1)."""

import asyncio
import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fairness.fair_turns import URGENT, URGENT_TURNS, Path
from broker.fairness.tenants import Tenants
from broker.fairness.turn_counts import TurnCounts
from broker.fairness.turns import Slot, Turns
from broker.model.errors import Unavailable
from broker.observability.metrics.counters import Counters
from broker.observability.metrics.families import TURN_HELD, TURN_WAITS, TURNS

LONG = 0.02


@dataclass(eq=False)
class Caller:
    """Waits for a turn and has it until it is told to end, or to fail."""

    slot: Slot
    number: int
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    has_turn: bool = False
    task: "asyncio.Task[None] | None" = None

    @property
    def is_over(self) -> bool:
        return self.task is not None and self.task.done()


class Office:
    """Callers of one kind of turns, on a clock of their own."""

    def __init__(self, slots: int, *, long_seconds: float = 1e9, tenants: Tenants | None = None) -> None:
        self.now = 0.0
        self.turns = Turns(slots, long_seconds=long_seconds, tenants=tenants, clock=self._clock)
        self._moments = itertools.count()
        self.callers: list[Caller] = []
        self.begun: list[Caller] = []
        self.asked = 0

    def _clock(self) -> float:
        return self.now + next(self._moments) * 1e-9  # each moment is another one

    def come(self, project: str, path: Path | None = None) -> Caller:
        caller = Caller(self.turns.of(project, path), self.asked)
        self.asked += 1
        self.callers.append(caller)
        caller.task = asyncio.ensure_future(self._call(caller))
        return caller

    async def _call(self, caller: Caller) -> None:
        async with caller.slot:
            caller.has_turn = True
            self.begun.append(caller)
            try:
                await caller.may_end.wait()
                if caller.fails:
                    raise LookupError
            finally:
                caller.has_turn = False

    def end(self, caller: Caller, *, fails: bool = False) -> None:
        caller.fails = fails
        caller.may_end.set()

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)
        for caller in self.callers:
            if caller.is_over and caller.task is not None and not caller.task.cancelled():
                caller.task.exception()
        self.callers = [caller for caller in self.callers if not caller.is_over]

    @property
    def having(self) -> list[Caller]:
        return [caller for caller in self.callers if caller.has_turn]

    @property
    def waiting(self) -> list[Caller]:
        return [caller for caller in self.callers if not caller.has_turn]

    async def close(self) -> None:
        """Let everybody have a turn, and see that nothing is left."""
        while self.callers:
            for caller in self.having:
                self.end(caller)
            before = len(self.callers)
            await self.settle()
            assert len(self.callers) < before, "a turn is free and somebody waits for ever"
        assert (len(self.turns), self.turns.under_way) == (0, 0)
        assert not self.turns.rule._root.tenants
        assert self.turns.rule._lone is None


COME, CANCEL, END, FAIL, GIVE_UP = "come", "cancel", "end", "fail", "give up"
stories = st.builds(Random, st.integers(0, 2**32))


def _do_something(office: Office, dice: Random, paths: list[Path]) -> None:
    op = dice.choices([COME, CANCEL, END, FAIL, GIVE_UP], [10, 3, 6, 1, 1])[0]
    if op == COME:
        path = dice.choice(paths)
        office.come(str(path[0]), path)
        return
    of = office.having if op in (END, FAIL) else office.callers
    if not of:
        return
    caller = dice.choice(of)
    if op == CANCEL:
        assert caller.task is not None
        caller.task.cancel()
    elif op == GIVE_UP:
        caller.slot.give_up(Unavailable("It has waited for too long."))
    else:
        office.end(caller, fails=op == FAIL)


@given(st.integers(1, 4), stories)
def test_slots_are_taken_as_long_as_anybody_waits_and_each_tenant_is_served_in_order(
    slots: int, dice: Random
) -> None:
    """Several things happen in a moment, before any task runs: callers are cancelled when their turn has come."""

    async def play() -> None:
        office = Office(slots)
        for _ in range(dice.randint(1, 60)):
            for _ in range(dice.randint(1, 4)):
                _do_something(office, dice, [("a", 0), ("a", 1), ("b", 0), ("c", 0)])
            office.now += dice.random()
            await office.settle()
            assert office.turns.under_way == len(office.having) == min(slots, len(office.callers))
            assert len(office.turns) == len(office.waiting)
        await office.close()
        begun = sorted(office.begun, key=lambda caller: caller.slot._began_at)
        for path in {caller.slot.path for caller in begun}:
            numbers = [caller.number for caller in begun if caller.slot.path == path]
            assert numbers == sorted(numbers)

    asyncio.run(play())


@given(stories)
def test_urgent_turns_are_first_but_for_one_in_four_whoever_leaves(dice: Random) -> None:
    """Compared with the rule written out for one slot and one project."""

    async def play() -> None:
        office, in_a_row = Office(1), 0
        for _ in range(100):
            before = office.waiting
            if not office.callers:
                in_a_row = 0
            _do_something(office, dice, [("p", URGENT, 0), ("p", URGENT, 0), ("p", 0)])
            seen = len(office.begun)
            await office.settle()
            for begun in office.begun[seen:]:
                others = [caller for caller in before if caller in office.callers and caller is not begun]
                urgent = [caller for caller in others if URGENT in caller.slot.path]
                if URGENT in begun.slot.path:
                    assert in_a_row < URGENT_TURNS or len(urgent) == len(others)
                    in_a_row += len(urgent) < len(others)
                else:
                    assert not urgent or in_a_row >= URGENT_TURNS
                    in_a_row = 0
        await office.close()

    asyncio.run(play())


@given(
    st.integers(1, 4),
    st.lists(st.tuples(st.floats(0.01, 0.5), st.integers(1, 20)), min_size=2, max_size=4),
    st.integers(0, 2**32),
)
def test_projects_get_equal_time_though_callers_leave_and_come_again(
    slots: int, projects: list[tuple[float, int]], seed: int
) -> None:
    async def play() -> None:
        office, dice, held = Office(slots), Random(seed), Counter[str]()
        costs = {f"projects/{number}": cost for number, (cost, _) in enumerate(projects)}
        for project, (_, callers) in zip(costs, projects, strict=True):
            for _ in range(callers + slots):
                office.come(project)
        await office.settle()
        for _ in range(200):
            first = office.having[0]
            office.now += costs[first.slot.project] / slots
            held[first.slot.project] += office.now - first.slot._began_at  # type: ignore[assignment]
            office.end(first)
            office.come(first.slot.project)
            if dice.random() < 0.3:
                leaves = dice.choice(office.waiting)
                assert leaves.task is not None
                leaves.task.cancel()
                office.come(leaves.slot.project)
            await office.settle()
        longest = (slots + 1) * max(costs.values())
        assert max(held.values()) - min(held[project] for project in costs) <= 2 * (slots + 1) * longest
        await office.close()

    asyncio.run(play())


async def _has_a_turn_left(office: Office, *, cancelled: str) -> bool:
    """Whether a third caller gets a turn after a second one is cancelled."""
    first, second = office.come("projects/a"), office.come("projects/b")
    await office.settle()
    assert second.task is not None
    if cancelled == "while it waits":
        second.task.cancel()
        await office.settle()
    first.slot.end()
    assert second.slot.begun or cancelled == "while it waits"
    if cancelled == "during its turn":
        await office.settle()
        assert second.has_turn
    second.task.cancel()
    office.end(first)
    third = office.come("projects/c")
    await office.settle()
    assert not second.has_turn
    return third.has_turn


MOMENTS = ("while it waits", "when its turn has just come", "during its turn")


@pytest.mark.parametrize("cancelled", MOMENTS)
async def test_a_caller_that_is_cancelled_leaves_the_slot_to_the_next(cancelled: str) -> None:
    office = Office(1)
    assert await _has_a_turn_left(office, cancelled=cancelled)
    await office.close()


@pytest.mark.parametrize("cancelled", MOMENTS[:2])
async def test_without_leaving_a_slot_would_stay_taken(cancelled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule taken out."""
    monkeypatch.setattr(Slot, "_leave", lambda _: None)
    office = Office(1)
    assert not await _has_a_turn_left(office, cancelled=cancelled)
    for caller in office.callers:
        assert caller.task is not None
        caller.task.cancel()


async def test_a_long_wait_is_refused_and_what_waits_behind_it_has_its_turn() -> None:
    turns = Turns(1, long_seconds=LONG, max_wait_seconds=0.0, refusal="Too much waits; try again.")
    async with turns.of("projects/a"):
        with pytest.raises(Unavailable, match="Too much waits"):
            async with turns.of("projects/b"):
                pass
        assert len(turns) == 0
    async with turns.of("projects/b"):
        assert turns.under_way == 1


async def test_a_slot_stays_taken_for_its_pause_and_the_pause_costs_nothing() -> None:
    office = Office(1)
    slot = office.turns.of("projects/a")
    assert slot.ask()
    office.now, slot.pause_seconds = 1.0, 0.001
    slot.end()
    next_one = office.come("projects/b")
    await asyncio.sleep(0)
    assert (office.turns.under_way, next_one.has_turn) == (1, False)
    assert next_one.task is not None
    office.end(next_one)
    await next_one.task
    await office.settle()
    await office.close()


async def test_turns_and_waits_are_counted_for_the_project_also_of_callers_that_leave() -> None:
    counters, now = Counters(), 0.0
    turns = Turns(1, long_seconds=LONG, counts=TurnCounts(counters, "look"), clock=lambda: now)
    slot, leaving = turns.of("projects/a"), turns.of("projects/b", ("shared", "projects/b"))
    assert slot.ask()
    assert not leaving.ask()
    waiting = asyncio.ensure_future(leaving.wait())
    await asyncio.sleep(0)
    now = 2.0
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    slot.end()
    slot.end()
    a, b = counters.project("projects/a"), counters.project("projects/b")
    assert [a[TURNS["look"]], a[TURN_WAITS["look"]], a[TURN_HELD["look"]]] == [1, 0, 2_000_000]
    assert [b[TURNS["look"]], b[TURN_WAITS["look"]], b[TURN_HELD["look"]]] == [0, 2_000_000, 0]


def test_who_is_alone_gets_a_turn_without_a_task_or_a_pass_of_the_loop() -> None:
    turns = Turns(1, long_seconds=LONG, tenants=Tenants())
    enter = turns.of("projects/a").__aenter__()
    with pytest.raises(StopIteration):
        enter.send(None)


def test_callers_that_come_and_leave_while_no_turn_begins_leave_nothing_behind() -> None:
    turns = Turns(2, long_seconds=LONG)
    slots = [turns.of("projects/a") for _ in range(3)]
    assert [slot.ask() for slot in slots] == [True, True, False]
    for number in range(1_000):
        guest = turns.of(f"projects/{number % 10}")
        assert not guest.ask()
        turns.rule.withdraw(guest)
    root = turns.rule._root
    assert len(turns) == 1
    assert len(root.tenants) == 1
    assert len(root.ready) + len(root.in_debt) <= 25
