"""One process of Google's Python client over gRPC, unchanged: publishing, streaming, pulling, and latency."""

import statistics

from benchmarks.bench import Bench, Place, Sample, compare, fresh_place, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.latency import delay_rows
from benchmarks.load_spec import Result, Spec
from benchmarks.report import Row, number
from benchmarks.servers import Server
from benchmarks.throughput import UNIT, fill
from benchmarks.wire import LoadFailed

_MESSAGE_BYTES = 100
_BACKLOG_PER_SECOND = {
    "google_streaming": 20_000,
    "google_pull": 100_000,
}  # of --seconds; more than the client takes
_PACE = 100.0  # messages a second
_PACED_LONGER = 2  # a paced round lasts so many times --seconds
_LATENCY_MARK = 0.3  # p50, ours : emulator


def grpc_publish(bench: Bench) -> list[Row]:
    return [_compared(bench, "publish, default batching", "google_publish", 1.0)]


def grpc_streaming(bench: Bench) -> list[Row]:
    return [_compared(bench, "streaming subscribe and ack", "google_streaming", 2.0)]


def grpc_pull(bench: Bench) -> list[Row]:
    return [_compared(bench, "pull(1000) and ack", "google_pull", 1.0)]


def _compared(bench: Bench, name: str, role: str, mark: float) -> Row:
    """A role of google_load.py; those that receive find a backlog, whose publishing is not measured."""
    row = Row(measure=f"gRPC, Python client: {name}", unit=UNIT, mark=mark)
    seconds = bench.options.seconds
    backlog = int(seconds * _BACKLOG_PER_SECOND.get(role, 0))
    client: dict[str, list[float]] = {server.name: [] for server in bench.servers}  # µs a message

    def load(server: Server, place: Place) -> Throughput:
        [result] = run_loads([_spec(server, place, role, seconds=seconds, count=backlog)])
        client[server.name].append(_processor_time(result))
        return throughput([result])

    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            if backlog:
                fill(server, place, backlog, size=_MESSAGE_BYTES)
            return take_sample(server, lambda: load(server, place))

    compare(bench, row, run)
    used = [f"{name} {number(statistics.median(taken))}" for name, taken in client.items() if taken]
    row.note = f"the client's own processor µs a message: {', '.join(used)}" if used else ""
    return row


def _spec(server: Server, place: Place, role: str, *, seconds: float, count: int = 0, rate: float = 0.0) -> Spec:
    return Spec(
        role=role,
        host=server.host,
        port=server.port,
        topic=place.topic,
        subscription=place.subscriptions[0],
        size=_MESSAGE_BYTES,
        seconds=seconds,
        count=count,
        rate=rate,
    )


def _processor_time(result: Result) -> float:
    return result.processor_seconds * 1e6 / max(1, result.messages)


def grpc_latency(bench: Bench) -> list[Row]:
    """From the call that publishes to the callback that has the message; percentiles over all rounds together."""
    bench.renew_emulator()
    delays: dict[str, list[float]] = {server.name: [] for server in bench.servers}
    failures: dict[str, str] = {}
    for round_ in range(bench.options.rounds + 1):
        for server in bench.servers if round_ % 2 else reversed(bench.servers):
            if server.name in failures:
                continue
            try:
                bench.use(server)
                with fresh_place(server) as place:
                    seconds = bench.options.seconds * _PACED_LONGER
                    [result] = run_loads([_spec(server, place, "google_latency", seconds=seconds, rate=_PACE)])
                delays[server.name] += result.pull_seconds if round_ else []
            except LoadFailed as error:
                failures[server.name] = str(error)
                say(f"gRPC latency, {server.name}: FAILED: {error}")
        say(f"gRPC latency, {f'round {round_}' if round_ else 'warm-up'}: done")
    return delay_rows(f"gRPC, Python client: publish → callback at {_PACE:g}/s", delays, failures, _LATENCY_MARK)
