"""Publishing by the clock, whatever the server makes of it: a load that does not slow down when the server does.

Each publish has a time at which it is due, and takes a connection that is free then; if there is none it is not
sent, and counted.  Its latency counts from when it was due.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import cast

import uvloop

from benchmarks.load_spec import Result, Run, Spec
from benchmarks.wire import LoadFailed

_GRACE_SECONDS = 60.0  # for the last answers


class _Connection(asyncio.Protocol):
    """One request at a time; answers are small and taken apart no further than their status and length."""

    def __init__(self, free: "list[_Connection]", result: Result) -> None:
        self._free = free
        self._result = result
        self._transport: asyncio.WriteTransport | None = None
        self._received = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)  # uvloop's does not say so
        self._free.append(self)

    def send(self, request: bytes, due: float) -> None:
        assert self._transport is not None
        self._due = due
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]):
            return
        status, self._received = int(head[9:12]), b""
        now = time.monotonic()
        if status == 200:
            self._result.publish_seconds.append(now - self._due)
            self._result.ended = now
        elif status in (429, 503):
            self._result.refused_seconds.append(now - self._due)
        else:
            self._result.error = body.decode(errors="replace")
        self._free.append(self)


def prepare_open_loop(spec: Spec, requests: Sequence[bytes]) -> Run:
    """Publish `spec.rate` requests a second over up to `spec.connections` connections, for `seconds`."""

    def run() -> Result:
        return uvloop.run(_run(spec, requests))

    return run


async def _run(spec: Spec, requests: Sequence[bytes]) -> Result:
    loop = asyncio.get_running_loop()
    result = Result()
    free: list[_Connection] = []
    for _ in range(spec.connections):
        try:
            await loop.create_connection(lambda: _Connection(free, result), spec.host, spec.port)
        except OSError as error:
            raise LoadFailed(f"{spec.host}:{spec.port} cannot be reached: {error}") from error
    result.started = result.ended = time.monotonic()
    total = int(spec.rate * spec.seconds)
    for number in range(total):
        due = result.started + number / spec.rate
        if (early := due - time.monotonic()) > 0:
            await asyncio.sleep(early)
        elif number % 20 == 0:
            await asyncio.sleep(0)  # behind: the answers must be read all the same
        if free:
            free.pop().send(requests[number % len(requests)], due)
            result.requests += 1
        else:
            result.unsent += 1
    give_up = time.monotonic() + _GRACE_SECONDS
    while len(free) < spec.connections and time.monotonic() < give_up:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    if len(free) < spec.connections:
        raise LoadFailed(f"{spec.connections - len(free)} publishes were never answered")
    result.messages = len(result.publish_seconds) * spec.batch
    return result
