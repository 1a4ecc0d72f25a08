"""Looking does not touch (F3): publish, pull and ack beside somebody who browses messages and tails all the time.

By turns on one broker, on fresh topics: nobody looks, or somebody does, in a process of its own.
"""

import time
from contextlib import AbstractContextManager
from functools import partial

from benchmarks.bench import Bench, Place, Sample, call_each, fresh_place, place_with, say, take_sample
from benchmarks.calls import ACK_ID, acknowledge, stamped_publish
from benchmarks.generators import program_beside
from benchmarks.latency import percentile
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.side_by_side import Figure, Side, Take, Taken, side_by_side, take_drain
from benchmarks.throughput import publish_load
from benchmarks.wire import Connection, LoadFailed, build_request

# Who looks without a pause, and who tails all that is published, takes a part of the processors: that has no mark.
_PAUSES = {"somebody looking 20 times a second": 0.1, "somebody looking without a pause": 0.0}
_CALLS = ("publish", "pull", "ack")
_MESSAGE_BYTES = 32
_PAUSE_SECONDS = 0.002  # between two messages
_SINGLE = Figure("publish, single messages, 64 connections")


def inspection(bench: Bench) -> list[Row]:
    """Latencies of one message after the other, single publishes and a drain."""
    rows: list[Row] = []
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        takes: list[Take] = [_take_calls, _take_single, take_drain]
        for words, pause in _PAUSES.items():
            sides = (
                Side(broker, partial(fresh_place, broker)),
                Side(broker, place_with(broker, partial(_browser, broker, pause))),
            )
            found = side_by_side(bench, takes, *sides, words)
            for row in found if not pause else [row for row in found if not row.lower_is_better]:
                row.mark = None
            rows += found
    except LoadFailed as error:
        say(f"looking: FAILED: {error}")
        rows.append(Row(measure="looking", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def _browser(server: Server, pause: float, place: Place) -> AbstractContextManager[None]:
    """Run a program that looks at a topic and its subscription."""
    call_each(server, [stamped_publish(place.topic, _MESSAGE_BYTES, time.monotonic())])
    arguments = [server.host, str(server.port), place.topic, place.subscriptions[0], str(pause)]
    return program_beside("the browsing program", "benchmarks.browser", *arguments)


def _take_single(server: Server, place: Place, seconds: float) -> Taken:
    load = partial(publish_load, server, place, batch=1, connections=64, seconds=seconds)
    return {_SINGLE: take_sample(server, load)}


def _take_calls(server: Server, place: Place, seconds: float) -> Taken:
    """Publish, pull and ack one message after the other."""
    took: dict[str, list[float]] = {name: [] for name in _CALLS}
    connection = Connection(server.host, server.port)
    pull = build_request("POST", f"/v1/{place.subscriptions[0]}:pull", b'{"maxMessages":10}')
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        _timed(connection, stamped_publish(place.topic, _MESSAGE_BYTES, 0.0), took["publish"])
        ack_ids = ACK_ID.findall(_timed(connection, pull, took["pull"]))
        if ack_ids:
            _timed(connection, acknowledge(place.subscriptions[0], ack_ids), took["ack"])
        time.sleep(_PAUSE_SECONDS)
    connection.close()
    found = {
        Figure(f"{name}, p{percent}", "ms", mark, lower_is_better=True): percentile(took[name], percent)
        for name in _CALLS
        for percent, mark in ((50, 1.25), (99, None))
    }
    return {figure: Sample(value, {}, 0.0) for figure, value in found.items() if value is not None}


def _timed(connection: Connection, request: bytes, took: list[float]) -> bytes:
    began = time.monotonic()
    answer = connection.call(request)
    took.append(time.monotonic() - began)
    return answer
