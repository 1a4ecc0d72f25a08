"""Overload: three times what the broker can take is offered; what is accepted, how soon, and at what memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench, fresh_place, say
from benchmarks.generators import run_loads, throughput
from benchmarks.latency import percentile
from benchmarks.load_spec import Spec
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.wire import LoadFailed

_BATCH = 1_000
_TIMES = 3  # the top rate
_CONNECTIONS, _PROCESSES = 1_000, 2
_MEGABYTE = 1e6
_CHECK_SECONDS = 0.1


def overload(bench: Bench) -> list[Row]:
    """A broker of its own: the top rate with 4 connections, each waiting for its answers; then the open loop."""
    broker = Broker(bench.options.workers)
    rows = [
        Row(measure=f"accepted at {_TIMES} times the top rate", unit="msg/s", mark=0.5),
        Row(measure="accepted, p99", unit="ms", lower_is_better=True),
        Row(measure="refused, p99", unit="ms", lower_is_better=True),
        Row(measure="broker's peak memory", unit="MB", lower_is_better=True),
    ]
    try:
        bench.use(broker)
        _measure(bench, broker, rows)
    except LoadFailed as error:
        rows[0].error = f"broker: {error}"
    finally:
        broker.stop()
    return rows


def _measure(bench: Bench, broker: Broker, rows: list[Row]) -> None:
    accepted, late, refused, memory = rows
    seconds = max(bench.options.seconds, 3.0)
    with fresh_place(broker) as place:
        common = {"host": broker.host, "port": broker.port, "topic": place.topic, "batch": _BATCH}
        closed = Spec(role="publish", connections=4, seconds=seconds, **common)  # type: ignore[arg-type]
        run_loads([closed])  # warms up
        top = throughput(run_loads([closed])).per_second
        before = broker.memory_bytes()["python"]
        rate = top * _TIMES / _BATCH / _PROCESSES
        per_process = _CONNECTIONS // _PROCESSES
        open_ = Spec(role="open_loop", connections=per_process, rate=rate, seconds=2 * seconds, **common)  # type: ignore[arg-type]
        with _peak(broker) as peak:
            results = run_loads([open_] * _PROCESSES)
    taken = [seconds for result in results for seconds in result.publish_seconds]
    away = [seconds for result in results for seconds in result.refused_seconds]
    unsent = sum(result.unsent for result in results)
    accepted.ours = throughput(results).per_second
    accepted.ratio = accepted.ours / top
    accepted.note = f"ratio: to the top rate, {number(top)}; {len(taken):,} accepted, {len(away):,} refused"
    accepted.note += f", {unsent:,} not sent: all {_CONNECTIONS:,} connections waited"
    late.ours, refused.ours = percentile(taken, 99), percentile(away, 99)
    late.note = f"p50 {number(percentile(taken, 50))}; from when each was due"
    refused.note = f"p50 {number(percentile(away, 50))}"
    memory.ours = max(peak) / _MEGABYTE
    memory.note = f"{number(before / _MEGABYTE)} MB before"
    say(f"overload: {accepted.note}")


@contextmanager
def _peak(broker: Broker) -> Iterator[list[int]]:
    """The memory of the broker's Python processes, looked at several times a second."""
    seen = [broker.memory_bytes()["python"]]
    ended = threading.Event()

    def check() -> None:
        while not ended.wait(_CHECK_SECONDS):
            seen.append(broker.memory_bytes()["python"])

    thread = threading.Thread(target=check)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
