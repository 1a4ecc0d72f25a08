"""Pulls that wait: 21 connections with as many pulls each as together are more than may wait in a process."""

import asyncio
from collections.abc import Callable

import grpc
import httpx

from broker.api.generated.messages import PullRequest

_CONNECTIONS, _PULLS = 21, 1_000
_PROJECT = "projects/greedy"
_SUBSCRIPTION = f"{_PROJECT}/subscriptions/pulls"
_AGAIN_SECONDS = 5.0  # who is refused


async def pulls_that_wait(host: str, port: int, ready: Callable[[], None]) -> None:
    async with httpx.AsyncClient(base_url=f"http://{host}:{port}/v1/", timeout=60) as client:
        topic = f"{_PROJECT}/topics/pulls"
        await client.put(topic)
        await client.put(_SUBSCRIPTION, json={"topic": topic})
    channels = [
        grpc.aio.insecure_channel(f"{host}:{port}", options=[("grpc.use_local_subchannel_pool", 1)])
        for _ in range(_CONNECTIONS)
    ]
    calls = [asyncio.create_task(_pull(channel)) for channel in channels for _ in range(_PULLS)]
    await asyncio.sleep(20)  # until all have asked
    ready()
    await asyncio.gather(*calls)


async def _pull(channel: grpc.aio.Channel) -> None:
    call = channel.unary_unary("/google.pubsub.v1.Subscriber/Pull")
    body = PullRequest(subscription=_SUBSCRIPTION, max_messages=1).SerializeToString()
    while True:
        try:
            await call(body)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(_AGAIN_SECONDS)
