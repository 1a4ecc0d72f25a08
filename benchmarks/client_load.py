"""Load through a Python client, on asyncio with uvloop: roles of benchmarks/load.py."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import uvloop

from benchmarks.clients.client import Client, client_class
from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import LoadFailed

_BODIES = 8  # batches of different ones


def _prepare(
    spec: Spec, ready: Callable[[Client], Awaitable[None]], load: Callable[[Client], Awaitable[Result]]
) -> Run:
    """Open a client before the start signal and use it after, in one event loop."""
    chosen = client_class(spec.client)
    client = chosen(spec.host, spec.port, spec.topic, spec.connections)
    runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    failures: tuple[type[Exception], ...] = (*chosen.errors, OSError, TimeoutError)

    async def begin() -> None:
        await client.open()
        await ready(client)

    async def do() -> Result:
        result = await load(client)
        await client.close()
        return result

    def run() -> Result:
        try:
            return runner.run(do())
        except* failures as group:
            raise LoadFailed(f"{spec.client}: {group.exceptions[0]!r}") from group

    try:
        runner.run(begin())
    except failures as error:
        raise LoadFailed(f"{spec.client}: {error!r}") from error
    return run


def prepare_client_publish(spec: Spec) -> Run:
    """Publish `batch` messages together, `connections` times at once, for `seconds` or until there are `count`."""
    batches = [[os.urandom(spec.size) for _ in range(spec.batch)] for _ in range(_BODIES)]

    async def ready(_: Client) -> None:
        return

    return _prepare(spec, ready, lambda client: _publish(spec, client, batches))


async def _publish(spec: Spec, client: Client, batches: Sequence[Sequence[bytes]]) -> Result:
    result = Result(started=time.monotonic())
    stop = result.started + (spec.seconds or float("inf"))
    allowed = -(-spec.count // spec.batch) if spec.count else sys.maxsize
    sent = 0

    async def publisher() -> None:
        nonlocal sent
        while sent < allowed and (before := time.monotonic()) < stop:
            sent += 1
            await client.publish(batches[sent % _BODIES])
            result.requests += 1
            result.publish_seconds.append(time.monotonic() - before)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(spec.connections):
            tasks.create_task(publisher())
    result.ended = time.monotonic()
    result.messages = result.requests * spec.batch
    return result


def prepare_client_drain(spec: Spec) -> Run:
    """Receive and ack up to `max_messages` at a time, for `seconds`, or until the backlog is empty."""
    return _prepare(spec, lambda client: client.subscribe(spec.subscription), lambda client: _drain(spec, client))


async def _drain(spec: Spec, client: Client) -> Result:
    result = Result(started=time.monotonic())
    result.ended = result.started
    while time.monotonic() < result.started + spec.seconds:
        received = await client.receive(spec.max_messages)
        if not received or (client.fills_batches and received < spec.max_messages):
            break  # the backlog is at its end; the time that was waited for more is not counted, nor is what came
        result.requests += 1
        result.messages += received
        result.ended = time.monotonic()
    before = time.monotonic()
    await client.settle()
    result.ended += time.monotonic() - before
    return result


CLIENT_ROLES: dict[str, Callable[[Spec], Run]] = {
    "client_publish": prepare_client_publish,
    "client_drain": prepare_client_drain,
}
