"""What the machine allows: the figures that the broker's are to be held against."""

import statistics

from benchmarks.bench import Bench, Place, Sample, median_cpu, say, take_sample
from benchmarks.generators import run_loads, throughput
from benchmarks.postgres import copy_rate, scratch_connection
from benchmarks.report import Row
from benchmarks.servers import EmptyServer
from benchmarks.throughput import publish_specs
from benchmarks.wire import LoadFailed

_MESSAGE_BYTES = 75


def copy_limit(bench: Bench) -> list[Row]:
    """Binary COPY of the same batches, each with its commit, through one connection to the broker's PostgreSQL."""
    rows = []
    for batch in (100, 1000):
        row = Row(measure=f"limit: COPY, batches of {batch:,}", unit="messages/s", note="PostgreSQL alone")
        try:
            bench.use(bench.broker)
            with scratch_connection(bench.broker.database_url) as connection:
                copy_rate(connection, batch, _MESSAGE_BYTES, bench.options.seconds / 2)  # warm-up
                values = [
                    copy_rate(connection, batch, _MESSAGE_BYTES, bench.options.seconds)
                    for _ in range(bench.options.rounds)
                ]
            row.ours, row.rounds = statistics.median(values), {"broker": values}
            say(f"{row.measure}: {row.ours:,.0f}")
        except LoadFailed as error:
            row.error = str(error)
        rows.append(row)
    return rows


def http_limit(bench: Bench) -> list[Row]:
    """An empty POST handler on bare ASGI, under the load of the single-message publishes."""
    row = Row(measure="limit: empty POST, 64 connections", unit="requests/s", note="bare ASGI, no PostgreSQL")
    server = EmptyServer()
    samples: list[Sample] = []
    place = Place("projects/bench/topics/empty", ())
    try:
        bench.use(server)
        for number in range(bench.options.rounds + 1):
            sample = _load(server, place, bench.options.seconds)
            samples += [sample] if number else []
            say(f"{row.measure}, round {number}: {sample.value:,.0f}")
        row.rounds = {"broker": [sample.value for sample in samples]}
        row.others = max(sample.others for sample in samples)
        row.ours, row.cpu = statistics.median(row.rounds["broker"]), median_cpu(samples)
    except LoadFailed as error:
        row.error = str(error)
    finally:
        server.stop()
    return [row]


def _load(server: EmptyServer, place: Place, seconds: float) -> Sample:
    specs = publish_specs(server, place, batch=1, processes=2, connections=32, seconds=seconds)
    return take_sample(server, lambda: throughput(run_loads(specs)))
