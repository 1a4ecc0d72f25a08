"""Resets (G2): how long a project of the size of a test takes to be emptied.  Ours alone: nobody else has them."""

import json
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.bench import Bench, call_each, fresh_place, say
from benchmarks.calls import publish_body
from benchmarks.report import Row, number
from benchmarks.servers import ResettableBroker, Server
from benchmarks.throughput import fill
from benchmarks.wire import Connection, LoadFailed, build_request

_PROJECT = "projects/tested"  # what others have is in another one
_TOPICS, _SUBSCRIPTIONS, _MESSAGES = 5, 3, 100  # subscriptions, messages of each topic
_TIMES = 10  # a round


def resets(bench: Bench) -> list[Row]:
    """Alone, and beside a backlog of another project as large as `--backlog` says (the first)."""
    beside = bench.options.backlog[0]
    what = f"reset of {_TOPICS} topics, {_TOPICS * _SUBSCRIPTIONS} subscriptions, {_TOPICS * _MESSAGES} messages"
    rows = [
        Row(measure=f"{what}, p50", unit="ms"),
        Row(measure=f"{what}, p50, beside {beside:,} messages of others", unit="ms", lower_is_better=True),
    ]
    broker = ResettableBroker(bench.options.workers)
    try:
        bench.use(broker)
        _reset(broker, 3)
        times = _TIMES * bench.options.rounds
        alone = _report(rows[0], _reset(broker, times))
        with _others(broker, beside):
            rows[1].ratio = _report(rows[1], _reset(broker, times)) / alone
            rows[1].note += "; ratio: beside them : alone"
    except LoadFailed as error:
        rows[0].error = f"broker: {error}"
    finally:
        broker.stop()
    return rows


@contextmanager
def _others(server: Server, count: int) -> Iterator[None]:
    with fresh_place(server) as place:
        fill(server, place, count)
        yield


def _reset(server: Server, times: int) -> list[float]:
    """Milliseconds of each.  Raises LoadFailed."""
    connection = Connection(server.host, server.port)
    taken = []
    for _ in range(times):
        call_each(server, _resources())
        began = time.perf_counter()
        connection.call(build_request("POST", f"/v1/{_PROJECT}:reset"))
        taken.append((time.perf_counter() - began) * 1000)
        if json.loads(connection.call(build_request("GET", f"/v1/{_PROJECT}/topics", b""))):
            raise LoadFailed("the project was reset, and still has topics")
    connection.close()
    return taken


def _resources() -> list[bytes]:
    requests = []
    for topic in (f"{_PROJECT}/topics/topic-{index}" for index in range(_TOPICS)):
        requests.append(build_request("PUT", f"/v1/{topic}"))
        for index in range(_SUBSCRIPTIONS):
            name = f"{topic.replace('/topics/', '/subscriptions/')}-{index}"
            requests.append(build_request("PUT", f"/v1/{name}", json.dumps({"topic": topic}).encode()))
        requests.append(build_request("POST", f"/v1/{topic}:publish", publish_body(_MESSAGES, 100)))
    return requests


def _report(row: Row, taken: Sequence[float]) -> float:
    """The median."""
    row.rounds = {"broker": list(taken)}
    row.ours = statistics.median(taken)
    row.note = f"most {number(max(taken))} of {len(taken)}"
    say(f"{row.measure}: {number(row.ours)} ms, {row.note}")
    return row.ours
