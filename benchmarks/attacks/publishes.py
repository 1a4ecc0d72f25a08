"""Publishes without a pause: as large as may be; thousands of messages a second; refused ones."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from benchmarks.attacks.caller import Caller, build_call

_LARGE_CALLERS, _LARGE_DATA = 16, "eHh4" * 2_400_000  # 9.6 MB on the way
_FLOOD_CALLERS, _FLOOD_MESSAGES, _FLOOD_DATA = 64, 100, "eHh4" * 250
_FULL_FORCE_SECONDS = 3.0
_PROJECT = "projects/greedy"


async def large_bodies(host: str, port: int, ready: Callable[[], None]) -> None:
    await _publish(host, port, ready, _LARGE_CALLERS, {"messages": [{"data": _LARGE_DATA}]})


async def publish_flood(host: str, port: int, ready: Callable[[], None]) -> None:
    """Each caller to a topic of its own: as many shards to be flushed."""
    await _publish(host, port, ready, _FLOOD_CALLERS, {"messages": [{"data": _FLOOD_DATA}] * _FLOOD_MESSAGES})


async def used_up_quota(host: str, port: int, ready: Callable[[], None]) -> None:
    """Whatever is refused is sent again at once."""
    await Caller(host, port).call("PATCH", f"{_PROJECT}/quotas", {"limits": {"publishMessages": 100}})
    await _publish(host, port, ready, _FLOOD_CALLERS, {"messages": [{"data": _FLOOD_DATA}]})


async def refused_calls(host: str, port: int, ready: Callable[[], None]) -> None:
    """To topics that do not exist, and with what cannot be read."""
    path = f"{_PROJECT}/topics/nowhere:publish"
    wrong = [build_call("POST", path, body) for body in ({"messages": [{"data": "eHh4"}]}, {"messages": "wrong"})]
    tasks = [asyncio.create_task(_send_for_ever(Caller(host, port), wrong)) for _ in range(_FLOOD_CALLERS)]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _publish(
    host: str, port: int, ready: Callable[[], None], callers: int, body: Mapping[str, object]
) -> None:
    tasks = [
        asyncio.create_task(_publish_for_ever(Caller(host, port), f"{_PROJECT}/topics/flood-{number}", body))
        for number in range(callers)
    ]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _publish_for_ever(caller: Caller, topic: str, body: Mapping[str, object]) -> None:
    await caller.call("PUT", topic)
    await _send_for_ever(caller, [build_call("POST", f"{topic}:publish", body)])


async def _send_for_ever(caller: Caller, requests: Sequence[bytes]) -> None:
    while True:
        for request in requests:
            await caller.send(request)
