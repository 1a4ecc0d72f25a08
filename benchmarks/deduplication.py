"""What it costs to know repeats: the same messages, each with an id of its own, by turns on one broker."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from benchmarks.bench import Bench, Place, call_each, fresh_place, say, take_sample
from benchmarks.generators import run_loads, throughput
from benchmarks.report import Row
from benchmarks.servers import Server
from benchmarks.side_by_side import Figure, Side, Take, Taken, side_by_side
from benchmarks.throughput import publish_specs
from benchmarks.wire import LoadFailed, build_request

_MARK = 0.7
_MOST = 600_000  # messages of one load
_WINDOWS = (("600s", _MARK), ("86400s", None))


def deduplication(bench: Bench) -> list[Row]:
    """Batches of 100, with windows of ten minutes and of a day."""
    rows: list[Row] = []
    try:
        bench.use(bench.broker)
        without = Side(bench.broker, partial(fresh_place, bench.broker))
        for window, mark in _WINDOWS:
            knowing = Side(bench.broker, _place_with(bench.broker, window))
            takes: list[Take] = [_take_publish(mark)]
            rows += side_by_side(bench, takes, without, knowing, f"repeats known for {window}")
    except LoadFailed as error:
        say(f"deduplication: FAILED: {error}")
        return [Row(measure="deduplication", unit="", error=f"broker: {error}")]
    return rows


def _take_publish(mark: float | None) -> Take:
    figure = Figure("publish, batches of 100 with ids", mark=mark)

    def take(server: Server, place: Place, seconds: float) -> Taken:
        specs = publish_specs(
            server, place, batch=100, processes=2, connections=1, seconds=seconds, count=_MOST, identified=True
        )
        return {figure: take_sample(server, lambda: throughput(run_loads(specs)))}

    return take


def _place_with(server: Server, window: str) -> Callable[[], AbstractContextManager[Place]]:
    """A fresh topic that knows repeats for so long."""

    @contextmanager
    def place() -> Iterator[Place]:
        with fresh_place(server) as found:
            extensions = {"deduplication": {"window": window}}
            body = {"topic": {"name": found.topic, "extensions": extensions}, "updateMask": "extensions"}
            call_each(server, [build_request("PATCH", f"/v1/{found.topic}", json.dumps(body).encode())])
            yield found

    return place
