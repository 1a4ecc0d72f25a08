"""Functions in JavaScript that loop, eat memory and write without end, on topics that 16 callers publish to."""

import asyncio
from collections.abc import Callable

from benchmarks.attacks.caller import Caller, build_call

_CALLERS = 16
_FULL_FORCE_SECONDS = 3.0
_HOSTILE = (
    "while (true) {}",
    "const all = []; while (true) { all.push(new Array(100000).fill(7)); }",
    'message.data = "x".repeat(30000000); return message;',
)


async def hostile_functions(host: str, port: int, ready: Callable[[], None]) -> None:
    tasks = [asyncio.create_task(_publish_for_ever(Caller(host, port), number)) for number in range(_CALLERS)]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _publish_for_ever(caller: Caller, number: int) -> None:
    topic = f"projects/greedy/topics/functions-{number}"
    code = f"function f(message, metadata) {{ {_HOSTILE[number % len(_HOSTILE)]} }}"
    await caller.call("PUT", topic, {"messageTransforms": [{"javascriptUdf": {"functionName": "f", "code": code}}]})
    publish = build_call("POST", f"{topic}:publish", {"messages": [{"data": "eHh4"}] * 10})
    while True:
        await caller.send(publish)
