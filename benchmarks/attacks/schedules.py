"""Schedules: 2,500 of one project that tick each second, on ten topics."""

import asyncio
from collections.abc import Callable, Iterator

from benchmarks.attacks.caller import Caller

_SCHEDULES, _TOPICS, _CALLERS = 2_500, 10, 16
_FULL_FORCE_SECONDS = 5.0  # until ticks are late
_PROJECT = "projects/greedy"


async def many_schedules(host: str, port: int, ready: Callable[[], None]) -> None:
    callers = [Caller(host, port) for _ in range(_CALLERS)]
    for number in range(_TOPICS):
        await callers[0].call("PUT", f"{_PROJECT}/topics/ticks-{number}")
    numbers = iter(range(_SCHEDULES))
    await asyncio.gather(*(_make(caller, numbers) for caller in callers))
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.Event().wait()


async def _make(caller: Caller, numbers: Iterator[int]) -> None:
    for number in numbers:
        body = {
            "topic": f"{_PROJECT}/topics/ticks-{number % _TOPICS}",
            "interval": "1s",
            "message": {"data": "eA=="},
        }
        await caller.call("PUT", f"{_PROJECT}/schedules/s{number}", body)
