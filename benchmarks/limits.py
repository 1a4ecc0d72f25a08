"""What the machine allows: the figures that the broker's are to be held against."""

import statistics
from collections.abc import Callable, Sequence

import psycopg

from benchmarks.bench import Bench, Place, Sample, median_cpu, say, take_sample
from benchmarks.generators import run_loads, throughput
from benchmarks.postgres import copy_rate, read_rate, scratch_connection
from benchmarks.report import Row, number
from benchmarks.servers import EmptyServer
from benchmarks.throughput import DRAIN_1, MESSAGE_BYTES, PUBLISH_100, PUBLISH_1000, PUBLISH_SINGLE, publish_specs
from benchmarks.wire import LoadFailed

_COPY, _SELECT, _POST = "limit: COPY, batches of {:,}", "limit: SELECT and JSON, {:,} rows", "limit: empty POST"
_BATCH = 1000  # messages of a pull

Rate = Callable[["psycopg.Connection[tuple[object, ...]]", int, int, float], float]


def copy_limit(bench: Bench) -> list[Row]:
    """Binary COPY of the same batches, each with its commit, through one connection to the broker's PostgreSQL."""
    return [_database_limit(bench, _COPY, copy_rate, batch) for batch in (100, 1000)]


def select_limit(bench: Bench) -> list[Row]:
    """Reading a pull's messages in key order through one connection, and encoding a pull's answer from them."""
    return [_database_limit(bench, _SELECT, read_rate, _BATCH)]


def _database_limit(bench: Bench, name: str, rate: Rate, batch: int) -> Row:
    row = Row(measure=name.format(batch), unit="messages/s", note="one connection, no broker")
    try:
        bench.use(bench.broker)
        with scratch_connection(bench.broker.database_url) as connection:
            rate(connection, batch, MESSAGE_BYTES, bench.options.seconds / 2)  # warm-up
            values = [
                rate(connection, batch, MESSAGE_BYTES, bench.options.seconds) for _ in range(bench.options.rounds)
            ]
        row.ours, row.rounds = statistics.median(values), {"broker": values}
        say(f"{row.measure}: {row.ours:,.0f}")
    except LoadFailed as error:
        row.error = str(error)
    return row


def http_limit(bench: Bench) -> list[Row]:
    """An empty POST handler on bare ASGI, under the load of the single-message publishes."""
    row = Row(measure=f"{_POST}, 64 connections", unit="requests/s", note="bare ASGI, no PostgreSQL")
    server = EmptyServer()
    samples: list[Sample] = []
    place = Place("projects/bench/topics/empty", ())
    try:
        bench.use(server)
        for round_ in range(bench.options.rounds + 1):
            sample = _load(server, place, bench.options.seconds)
            samples += [sample] if round_ else []
            say(f"{row.measure}, round {round_}: {sample.value:,.0f}")
        row.rounds = {"broker": [sample.value for sample in samples]}
        row.others = max(sample.others for sample in samples)
        row.ours, row.cpu = statistics.median(row.rounds["broker"]), median_cpu(samples)
    except LoadFailed as error:
        row.error = str(error)
    finally:
        server.stop()
    return [row]


# What is held against which limit: the measure, the limit, the share of it to reach.
_SHARES = (
    (PUBLISH_100, _COPY.format(100), 0.6),
    (PUBLISH_1000, _COPY.format(1000), 0.6),
    (PUBLISH_SINGLE, _POST, 0.4),
    (DRAIN_1, _SELECT.format(_BATCH), 0.5),
)


def shares_of_limits(rows: Sequence[Row]) -> list[Row]:
    """A row for each measure that was taken in the same run as its limit; the ratio is to the limit."""
    shares = []
    for measure, limit_name, mark in _SHARES:
        taken = next((row for row in rows if row.measure == measure and row.ours), None)
        limit = next((row for row in rows if row.measure.startswith(limit_name) and row.ours), None)
        if taken is not None and limit is not None and taken.ours and limit.ours:
            share = Row(
                measure=f"{measure} : {limit.measure.removeprefix('limit: ')}",
                unit=taken.unit,
                ours=taken.ours,
                mark=mark,
            )
            share.ratio = taken.ours / limit.ours
            share.note = f"ratio: to the limit of {number(limit.ours)}"
            shares.append(share)
    return shares


def _load(server: EmptyServer, place: Place, seconds: float) -> Sample:
    specs = publish_specs(server, place, batch=1, processes=2, connections=32, seconds=seconds)
    return take_sample(server, lambda: throughput(run_loads(specs)))
