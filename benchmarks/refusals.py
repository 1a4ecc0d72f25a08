"""What the broker spends on a request before it refuses it: processor time and memory.

The requests are as expensive as the limits allow, of callers without a credential and without a role.
"""

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import psutil

from benchmarks.attacks.http2_caller import Http2Caller
from benchmarks.attacks.strangers import (
    HEALTH,
    PUBLISH,
    most_elements,
    packed_elements,
    packed_zeros,
    without_a_role,
)
from benchmarks.bench import say
from benchmarks.report import Row
from benchmarks.servers import Server

_REQUESTS = 100
_BEGUN = 1_000_000  # bytes that are sent of a body that is not compressed
_MARK_MS, _MARK_MB = 2.0, 1.0

Call = Callable[[Http2Caller], Awaitable[object]]


def refusals(server: Server) -> list[Row]:
    """Rows of a broker that asks who calls; the credential that the benchmark shows is the administrator's."""
    return asyncio.run(_measure(server))


async def _measure(server: Server) -> list[Row]:
    credential = await without_a_role(server.host, server.port)
    rows: list[Row] = []
    for name, call in _calls(credential).items():
        caller = Http2Caller(server.host, server.port)
        await call(caller)  # what is learned by the first is known to the others
        timing, before = [], _resident(server)
        for _ in range(_REQUESTS):
            start = _processor_ms(server)
            await call(caller)
            timing.append(_processor_ms(server) - start)
        grown = (_resident(server) - before) / 1e6
        median = statistics.median(timing)
        say(f"refusals, {name}: {median:.2f} ms, {grown:.1f} MB after {_REQUESTS}")
        rows.append(_row(f"processor time of a refusal, {name}", "ms", median, _MARK_MS))
        rows.append(_row(f"memory that {_REQUESTS} refusals leave, {name}", "MB", grown, _MARK_MB))
    return rows


def _calls(credential: str) -> Mapping[str, Call]:
    elements, packed, zeros = most_elements(), packed_elements(), packed_zeros()
    return {
        "5 million elements, gzip, no credential": lambda caller: caller.call(PUBLISH, packed, packed=True),
        "10 MB of zeros, gzip, health check": lambda caller: caller.call(HEALTH, zeros, packed=True),
        "5 million elements, gzip, no role": lambda caller: caller.call(
            PUBLISH, packed, authorization=credential, packed=True
        ),
        "5 million elements, no role": lambda caller: _begun(caller, elements, credential),
    }


async def _begun(caller: Http2Caller, message: bytes, credential: str) -> None:
    ended = await caller.begin(PUBLISH, message, _BEGUN, authorization=credential)
    await ended.wait()


def _row(measure: str, unit: str, value: float, mark: float) -> Row:
    row = Row(measure=measure, unit=unit, ours=value, mark=1.0, ratio=value / mark, lower_is_better=True)
    row.note = f"median of {_REQUESTS}; ratio: to {mark:g} {unit}" if unit == "ms" else f"ratio: to {mark:g} {unit}"
    return row


def _processor_ms(server: Server) -> float:
    """Of the main threads of the broker's processes, where their event loops run; by the scheduler's own count."""
    return sum(int(Path(f"/proc/{each.pid}/schedstat").read_text().split()[0]) for each in _python(server)) / 1e6


def _resident(server: Server) -> int:
    return sum(each.memory_info().rss for each in _python(server))


def _python(server: Server) -> list[psutil.Process]:
    return [each for each in server.processes() if each.name().startswith("python")]
