"""Small calls of one project are few at once while another uses the process (M1)."""

import asyncio

import pytest

from broker.api.limits import hot_calls
from broker.api.limits.hot_calls import HotCalls
from broker.model.errors import Unavailable

GREEDY, GOOD = "projects/greedy/topics/t", "projects/good/topics/t"


class Calls:
    """That are under way until they are told to end."""

    def __init__(self, *, contended: bool, at_once: int = 4) -> None:
        self.hot_calls = HotCalls(lambda: contended, at_once)
        self._call = self.hot_calls.bounded(self._handle, lambda name: name)
        self.begun: list[str] = []
        self.ends: list[asyncio.Event] = []

    async def _handle(self, name: str) -> bytes:
        self.begun.append(name)
        self.ends.append(end := asyncio.Event())
        await end.wait()
        return b"{}"

    def call(self, name: str) -> asyncio.Task[bytes]:
        async def call() -> bytes:
            return await self._call(name)

        return asyncio.create_task(call())


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_who_comes_begins_at_once_though_many_of_another_project_wait() -> None:
    calls = Calls(contended=True)
    greedy = [calls.call(GREEDY) for _ in range(40)]
    await settled()
    assert calls.begun == [GREEDY] * 4
    good = calls.call(GOOD)
    await settled()
    assert calls.begun == [*[GREEDY] * 4, GOOD]
    for task in (*greedy, good):
        task.cancel()


async def test_who_is_alone_waits_for_nothing() -> None:
    calls = Calls(contended=False)
    tasks = [calls.call(GREEDY) for _ in range(40)]
    await settled()
    assert calls.begun == [GREEDY] * 40
    for task in tasks:
        task.cancel()


async def test_each_has_its_turn_in_the_order_in_which_they_came_and_nothing_is_kept_of_them() -> None:
    calls = Calls(contended=True, at_once=2)
    tasks = [calls.call(f"projects/greedy/topics/{number}") for number in range(10)]
    await settled()
    tasks[1].cancel()  # one that is under way
    tasks[5].cancel()  # one that waits
    for _ in range(20):
        await settled()
        for end in calls.ends:
            end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [name.rpartition("/")[2] for name in calls.begun] == ["0", "1", "2", "3", "4", "6", "7", "8", "9"]
    assert not calls.hot_calls._projects


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot_calls, "MAX_WAIT_SECONDS", 0.0)
    calls = Calls(contended=True, at_once=1)
    under_way, waits = calls.call(GREEDY), calls.call(GREEDY)
    with pytest.raises(Unavailable, match=r"Too many calls of projects/greedy are under way"):
        await waits
    under_way.cancel()
