"""Messages that take as long to check as they may: 6 callers publish 52 bytes each by a short JSON Schema."""

import asyncio
import base64
import json
from collections.abc import Callable

from benchmarks.attacks.caller import Caller, build_call

_CALLERS = 6
_FULL_FORCE_SECONDS = 5.0
_PROJECT = "projects/greedy"
# Each level of a message is checked twice, and so is each level within it.
_TWICE = [{"type": "array", "items": {"$ref": "#"}, "minItems": least} for least in (2, 1)]
_DEFINITION = json.dumps({"anyOf": [{"type": "integer"}, *_TWICE]})
_LEVELS = 26
_MESSAGE = {"data": base64.b64encode(b"[" * _LEVELS + b"]" * _LEVELS).decode()}


async def slow_schemas(host: str, port: int, ready: Callable[[], None]) -> None:
    callers = [Caller(host, port) for _ in range(_CALLERS)]
    schema = {"type": "JSON", "definition": _DEFINITION}
    await callers[0].call("POST", f"{_PROJECT}/schemas?schemaId=slow", schema)
    settings = {"schema": f"{_PROJECT}/schemas/slow", "encoding": "JSON"}
    topic = f"{_PROJECT}/topics/slow"
    await callers[0].call("PUT", topic, {"schemaSettings": settings})
    publish = build_call("POST", f"{topic}:publish", {"messages": [_MESSAGE]})
    tasks = [asyncio.create_task(_publish_for_ever(caller, publish)) for caller in callers]
    await asyncio.sleep(_FULL_FORCE_SECONDS)
    ready()
    await asyncio.gather(*tasks)


async def _publish_for_ever(caller: Caller, publish: bytes) -> None:
    while True:
        await caller.send(publish)
