"""Long steps of the event loop stand in a row, with room between them for whoever needs it for a moment (M1)."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Generator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.fairness.loop_turns import COST_OF_TURN, MOST_TURNS, LoopTurns, SpacedSteps, turns_after

WHO = ("a", "b", "c")
_COSTS = st.integers(1, 1_000_000)


def _play(steps: SpacedSteps[int], asked: dict[int, list[tuple[str, int]]], *, turns: int, idle: bool) -> list[int]:
    """What is asked for in each turn of the loop; returns in which turn each step was done, by its number."""
    done: dict[int, int] = {}
    number = 0
    for turn in range(turns):
        if steps.resting and (item := steps.passed(idle=idle)) is not None:
            done[item] = turn
        for who, cost in asked.get(turn, ()):
            if (item := steps.ask(who, cost, number)) is not None:
                done[item] = turn
            number += 1
    return [done[item] for item in range(number)]


@given(
    st.dictionaries(st.integers(0, 60), st.lists(st.tuples(st.sampled_from(WHO), _COSTS), max_size=4), max_size=12)
)
def test_after_each_step_the_loop_has_its_turns(asked: dict[int, list[tuple[str, int]]]) -> None:
    """Whoever asks, and whenever; and no step is forgotten, nor waits when there was none a moment ago."""
    steps = [(turn, cost) for turn, each in sorted(asked.items()) for _, cost in each]
    done = _play(SpacedSteps(), asked, turns=80 + len(steps) * MOST_TURNS, idle=False)
    in_order = sorted(zip(done, (cost for _, cost in steps), strict=True))
    free_from = 0
    for asked_in, (at, cost) in zip((turn for turn, _ in steps), in_order, strict=True):
        assert at == max(asked_in, free_from)
        free_from = at + turns_after(cost)


@given(st.integers(1, 20))
def test_where_there_is_nothing_else_to_do_steps_follow_each_other(count: int) -> None:
    done = _play(SpacedSteps(), {0: [("a", 9 * COST_OF_TURN)] * count}, turns=3 * count, idle=True)
    assert done == [2 * number for number in range(count)]


@given(costs=st.lists(_COSTS, min_size=3, max_size=3), flood=st.integers(1, 40))
def test_who_comes_new_waits_for_one_step_of_each_other(costs: list[int], flood: int) -> None:
    steps: SpacedSteps[str] = SpacedSteps()
    for _ in range(flood):
        for who, cost in zip(WHO, costs, strict=True):
            steps.ask(who, cost, who)
    steps.ask("new", 1_000, "new")
    before: Counter[str] = Counter()
    while (item := _next(steps)) != "new":
        before[item] += 1
    assert max(before.values(), default=0) <= 1


def _next(steps: SpacedSteps[str]) -> str:
    while True:
        item = steps.passed(idle=False)
        if item is not None:
            return item


@given(costs=st.tuples(_COSTS, _COSTS))
def test_what_counts_is_what_steps_cost(costs: tuple[int, int]) -> None:
    steps: SpacedSteps[str] = SpacedSteps()
    had: Counter[str] = Counter()
    cost_of = dict(zip(WHO, costs, strict=False))
    for who in cost_of:
        for _ in range(3):
            steps.ask(who, cost_of[who], who)
    for _ in range(200):
        who = _next(steps)
        steps.ask(who, cost_of[who], who)
        had[who] += cost_of[who]
    assert abs(had["a"] - had["b"]) <= 4 * max(costs)


# --- with an event loop ------------------------------------------------------------------------------------------


async def _others_turns(seen: list[int]) -> None:
    while True:
        seen[0] += 1
        await asyncio.sleep(0)


async def test_steps_of_several_leave_the_loop_to_others() -> None:
    seconds = itertools.count(1.0)  # no turn of the loop seems idle
    turns, seen, at = LoopTurns(lambda: next(seconds)), [0], list[int]()

    def steps() -> Generator[int, None, str]:
        for _ in range(5):
            yield 8 * COST_OF_TURN
            at.append(seen[0])
        return "done"

    others = asyncio.create_task(_others_turns(seen))
    results = await asyncio.gather(*(turns.run(f"projects/{n}", steps()) for n in range(3)))
    others.cancel()
    assert results == ["done"] * 3
    assert len(at) == 15
    assert all(after - before >= 8 for before, after in itertools.pairwise(at))


async def test_what_a_step_raises_is_its_own() -> None:
    turns = LoopTurns()

    def steps() -> Generator[int, None, None]:
        yield 1
        raise LookupError

    with pytest.raises(LookupError):
        await turns.run("a", steps())
    await turns.wait("a", 1)


async def test_who_is_cancelled_while_he_waits_holds_nobody_up() -> None:
    turns = LoopTurns()
    assert turns.begin("a", 1)
    waiting = [asyncio.create_task(turns.wait("a", 1)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    waiting[1].cancel()
    await waiting[2]


async def test_who_is_alone_waits_for_nothing() -> None:
    """Not a turn of the loop."""
    turns = LoopTurns()

    def steps() -> Generator[int, None, str]:
        yield 1
        return "done"

    run = turns.run("a", steps())
    with pytest.raises(StopIteration) as end:
        run.send(None)
    assert end.value.value == "done"


async def test_a_step_after_another_waits_for_its_turn() -> None:
    turns = LoopTurns()
    await turns.turn("a", 1)
    second = turns.turn("b", 1)
    second.send(None)  # it waits
    second.close()
