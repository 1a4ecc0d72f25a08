"""Filters on trial: 120 callers look through a topic of 10,000 messages for what is not there."""

import asyncio
from collections.abc import Callable

from benchmarks.attacks.caller import Caller

_CALLERS = 120
_BATCH, _BATCHES = 1_000, 10  # messages to look through
_FILTER = {"filter": 'attributes.kind = "none" AND NOT attributes:other'}
_FULL_FORCE_SECONDS = 2.0
_TOPIC = "projects/greedy/topics/trials"


async def filters_on_trial(host: str, port: int, ready: Callable[[], None]) -> None:
    callers = [Caller(host, port) for _ in range(_CALLERS)]
    await callers[0].call("PUT", _TOPIC, {"messageRetentionDuration": "3600s"})
    body = {"messages": [{"data": "eA==", "attributes": {"kind": "some", "x": "y"}}] * _BATCH}
    for _ in range(_BATCHES):
        await callers[0].call("POST", f"{_TOPIC}:publish", body)
    tasks = [asyncio.create_task(_try_for_ever(caller)) for caller in callers]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _try_for_ever(caller: Caller) -> None:
    while True:
        await caller.call("POST", f"{_TOPIC}:testFilter", _FILTER)
