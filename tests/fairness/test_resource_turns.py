"""Calls about resources take turns by project (M1): many of one do not hold up those of another."""

import asyncio

import pytest

from broker.fairness.resource_turns import MOST_PAUSE_SECONDS, ResourceTurns
from broker.fairness.tenants import Tenants
from broker.model.errors import Unavailable
from tests.fixtures.broker import PATIENCE_SECONDS, eventually

GREEDY, GOOD = "projects/greedy", "projects/good"


class Calls:
    """Calls that are under way until they are told to end."""

    def __init__(self, turns: ResourceTurns) -> None:
        self.begun: list[str] = []
        self._turns = turns
        self._ends: list[asyncio.Event] = []

    def call(self, project: str) -> asyncio.Task[None]:
        return asyncio.create_task(self._call(project))

    async def _call(self, project: str) -> None:
        async with self._turns.of(project):
            self.begun.append(project)
            end = asyncio.Event()
            self._ends.append(end)
            await end.wait()

    async def end_first(self) -> None:
        self._ends.pop(0).set()
        await settled()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_comes_is_next_though_many_of_another_project_wait() -> None:
    calls = Calls(ResourceTurns(at_once=2, max_under_way=100))
    greedy = [calls.call(GREEDY) for _ in range(40)]
    await settled()
    good = calls.call(GOOD)
    await settled()
    assert calls.begun == [GREEDY] * 2
    await calls.end_first()
    assert calls.begun == [GREEDY, GREEDY, GOOD]
    for task in (*greedy, good):
        task.cancel()


async def test_a_call_that_reads_is_refused_while_its_project_has_no_capacity_for_answers() -> None:
    """It is asked when the turn has come: what was being made before counts by then."""
    full: set[str] = set()

    def has_capacity(resource: str, *, is_short: bool = False) -> bool:
        return is_short or resource not in full

    calls = Calls(turns := ResourceTurns(at_once=1, has_capacity=has_capacity))
    first, waits, other = calls.call(GREEDY), calls.call(GREEDY), calls.call(GOOD)
    await settled()
    full.add(GREEDY)
    await calls.end_first()
    await calls.end_first()
    assert calls.begun == [GREEDY, GOOD]
    await first
    await other
    with pytest.raises(Unavailable, match=f"slow readers of {GREEDY}"):
        await waits
    async with turns.of(GREEDY, is_short=True):
        pass


async def test_one_project_has_a_few_at_once_while_another_uses_the_process_for_whatever_it_is() -> None:
    tenants = Tenants()
    calls = Calls(ResourceTurns(at_once=8, tenants=tenants))
    tenants.note_turn(GREEDY)
    tenants.note_turn(GOOD)  # say a publish
    greedy = [calls.call(GREEDY) for _ in range(40)]
    await settled()
    assert calls.begun == [GREEDY] * 2
    for task in greedy:
        task.cancel()


async def test_a_turn_ends_after_a_pause_while_another_project_uses_the_process() -> None:
    tenants = Tenants(clock=lambda: 0.0)
    calls, loop = Calls(ResourceTurns(at_once=8, tenants=tenants)), asyncio.get_running_loop()
    tenants.note_turn(GREEDY)
    tenants.note_turn(GOOD)
    greedy = [calls.call(GREEDY) for _ in range(3)]
    await settled()
    await asyncio.sleep(MOST_PAUSE_SECONDS)  # the calls last at least so long, and so does the pause
    ended = loop.time()
    await calls.end_first()
    await eventually(lambda: len(calls.begun) == 3)
    assert loop.time() >= ended + MOST_PAUSE_SECONDS
    for task in greedy:
        task.cancel()


async def test_who_is_alone_has_all_of_them_at_once() -> None:
    tenants = Tenants()
    calls = Calls(ResourceTurns(at_once=8, tenants=tenants))
    tenants.note_turn(GREEDY)
    greedy = [calls.call(GREEDY) for _ in range(40)]
    await settled()
    assert calls.begun == [GREEDY] * 8
    for task in greedy:
        task.cancel()


async def test_one_project_leaves_capacity_to_wait_in_and_is_told_its_name() -> None:
    calls = Calls(ResourceTurns(at_once=1, max_under_way=10))
    greedy = [calls.call(GREEDY) for _ in range(20)]
    await settled()
    refused = [task.exception() for task in greedy if task.done()]
    assert len(refused) == 12
    assert all(isinstance(error, Unavailable) and GREEDY in str(error) for error in refused)
    good = calls.call(GOOD)
    await settled()
    assert not good.done()
    for task in (*greedy, good):
        task.cancel()


@pytest.mark.parametrize("moment", ["waits", "has just been given its turn", "is under way"])
async def test_a_caller_that_leaves_gives_back_its_turn(moment: str) -> None:
    turns = ResourceTurns(at_once=1, max_under_way=10)
    calls = Calls(turns)
    end = asyncio.Event()

    async def first() -> None:
        async with turns.of(GOOD):
            await end.wait()
        if moment == "has just been given its turn":
            leaving.cancel()

    ending = asyncio.create_task(first())
    await settled()
    leaving = calls.call(GREEDY)
    await settled()
    if moment == "waits":
        leaving.cancel()
        await settled()
    end.set()
    await ending
    await settled()
    assert calls.begun == ([GREEDY] if moment == "is under way" else [])
    leaving.cancel()
    await settled()
    async with asyncio.timeout(PATIENCE_SECONDS), turns.of(GREEDY):
        pass
    assert turns._capacity.total == 0
    assert turns._turns.under_way == len(turns._turns) == 0
