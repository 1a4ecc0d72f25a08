"""Claims that take long: 40 subscriptions, of a topic each, go back to its beginning and look through a filter for
what is not there.
"""

import asyncio
import json
from collections.abc import Callable

import httpx

_SUBSCRIPTIONS = 40
_BATCH, _BATCHES = 1_000, 10  # messages for each to look through
_PROJECT = "projects/greedy"


async def seek_and_filter(host: str, port: int, ready: Callable[[], None]) -> None:
    limits = httpx.Limits(max_connections=_SUBSCRIPTIONS)
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}/v1/", timeout=120, limits=limits) as client:
        for number in range(_SUBSCRIPTIONS):
            await _prepare(client, number)
        ready()
        await asyncio.gather(*(_check(client, number) for number in range(_SUBSCRIPTIONS)))


async def _prepare(client: httpx.AsyncClient, number: int) -> None:
    topic = f"{_PROJECT}/topics/filters-{number}"
    await client.put(topic)
    subscription = {"topic": topic, "filter": 'attributes.kind = "none" AND NOT attributes:other'}
    (await client.put(_subscription(number), json=subscription)).raise_for_status()
    body = json.dumps({"messages": [{"data": "eA==", "attributes": {"kind": "some", "x": "y"}}] * _BATCH})
    for _ in range(_BATCHES):
        (await client.post(f"{topic}:publish", content=body)).raise_for_status()


async def _check(client: httpx.AsyncClient, number: int) -> None:
    while True:
        await client.post(f"{_subscription(number)}:seek", json={"time": "2020-01-01T00:00:00Z"})
        await client.post(f"{_subscription(number)}:pull", json={"maxMessages": 1, "returnImmediately": True})


def _subscription(number: int) -> str:
    return f"{_PROJECT}/subscriptions/filters-{number}"
