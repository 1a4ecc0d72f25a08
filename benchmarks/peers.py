"""Beside durable brokers of others: publishing until it is on the disk, and consuming with acks."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from benchmarks.bench import Bench, Sample, median_cpu, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.latency import percentile
from benchmarks.load_spec import Result, Spec
from benchmarks.peer_systems import BrokerBySockets, System, ThroughClient
from benchmarks.report import Row
from benchmarks.wire import LoadFailed

_OURS_BY_CLIENT = "ours, aiohttp"
_RATIO_NOTE = f"ratio: {_OURS_BY_CLIENT} : the best of the others"


Loads = Callable[[System], AbstractContextManager[list[Spec]]]


@dataclass(frozen=True, slots=True)
class _Taken:
    """One round of one system."""

    sample: Sample
    client_cpu: float  # processor time of the load's processes for a message, in µs
    publish_ms: float | None  # the median time of one publish


def peers_publish_single(bench: Bench) -> list[Row]:
    """Single messages from two processes, 64 of them in flight."""
    return _publish(bench, "publish, single messages, 64 in flight", batch=1, at_once=64)


def peers_publish_100(bench: Bench) -> list[Row]:
    """Two processes publish 100 messages, wait for all answers, and again."""
    return _publish(bench, "publish, 100 at once, 2 publishers", batch=100, at_once=2)


def peers_drain_1(bench: Bench) -> list[Row]:
    return _drain(bench, "consume a backlog with acks, 1 consumer", consumers=1)


def peers_drain_2(bench: Bench) -> list[Row]:
    return _drain(bench, "consume a backlog with acks, 2 consumers", consumers=2)


def _publish(bench: Bench, measure: str, *, batch: int, at_once: int) -> list[Row]:
    seconds = bench.options.seconds
    rows = _compare(bench, measure, lambda system: system.publishing(batch=batch, at_once=at_once, seconds=seconds))
    versions = [f"{peer.name} {peer.version}" for peer in bench.peers if peer.started]
    rows[0].note = "; ".join([_RATIO_NOTE, "every answer follows an fsync", *versions])
    return rows


def _drain(bench: Bench, measure: str, *, consumers: int) -> list[Row]:
    seconds = bench.options.seconds
    rows = _compare(bench, measure, lambda system: system.draining(consumers=consumers, seconds=seconds))
    rows[0].note = "; ".join(
        [_RATIO_NOTE, *(f"{peer.name}: {peer.ack_note}" for peer in bench.peers if peer.ack_note)]
    )
    return rows


def _systems(bench: Bench) -> list[System]:
    """Ours twice: as the other measures load it, and through a client as ordinary as those of the others."""
    by_sockets = BrokerBySockets(bench.broker)
    return [
        by_sockets,
        ThroughClient(_OURS_BY_CLIENT, bench.broker, "aiohttp", by_sockets.backlog_per_second, bench.kept_backlogs),
        *(
            ThroughClient(peer.name, peer, peer.client, peer.backlog_per_second, bench.kept_backlogs)
            for peer in bench.peers
        ),
    ]


def _compare(bench: Bench, measure: str, loads: Loads) -> list[Row]:
    """A warm-up round that is not counted, then rounds that alternate between the systems, as bench.compare() has.

    A system that fails is left out of the remaining rounds; the first row says so.
    """
    systems = _systems(bench)
    taken: dict[str, list[_Taken]] = {system.name: [] for system in systems}
    failures: dict[str, str] = {}
    for number in range(bench.options.rounds + 1):
        for system in systems if number % 2 else reversed(systems):
            if system.name in failures:
                continue
            try:
                bench.use(system.server)
                with loads(system) as specs:
                    one = _take(system, specs)
            except LoadFailed as error:
                failures[system.name] = (
                    f"{error} ({system.server.last_words})" if system.server.started else str(error)
                )
                say(f"{measure}, {system.name}: FAILED: {failures[system.name]}")
                continue
            if number:
                taken[system.name].append(one)
            say(f"{measure}, {system.name}, {f'round {number}' if number else 'warm-up'}: {one.sample.value:,.0f}")
    rows = _rows(measure, taken)
    rows[0].error = "; ".join(f"{name}: {error}" for name, error in failures.items())
    return rows


def _take(system: System, specs: Sequence[Spec]) -> _Taken:
    results: list[Result] = []

    def load() -> Throughput:
        results.extend(run_loads(specs))
        return throughput(results)

    sample = take_sample(system.server, load)
    seconds = [second for result in results for second in result.publish_seconds]
    client_cpu = (
        sum(result.processor_seconds for result in results) * 1e6 / sum(result.messages for result in results)
    )
    return _Taken(sample, client_cpu, percentile(seconds, 50))


def _rows(measure: str, taken: Mapping[str, Sequence[_Taken]]) -> list[Row]:
    """Messages a second; the time of a publish, if any; where the processors' time goes."""
    rows = [
        _row(Row(measure=measure, unit="messages/s"), taken, lambda one: one.sample.value),
        _row(Row(measure=f"{measure}, p50", unit="ms", lower_is_better=True), taken, lambda one: one.publish_ms),
        _row(
            Row(measure=f"{measure}, server", unit="µs a message"), taken, lambda one: sum(one.sample.cpu.values())
        ),
        _row(Row(measure=f"{measure}, client", unit="µs a message"), taken, lambda one: one.client_cpu),
    ]
    rows[0].others = max((one.sample.others for rounds in taken.values() for one in rounds), default=None)
    rows[0].cpu = median_cpu([one.sample for one in taken["broker"]])
    for row in rows[:2]:
        others = [value for name, value in row.peers.items() if name != _OURS_BY_CLIENT]
        if others and (ours := row.peers.get(_OURS_BY_CLIENT)):
            row.ratio = ours / (min(others) if row.lower_is_better else max(others))
    return [row for row in rows if row.rounds]


def _row(row: Row, taken: Mapping[str, Sequence[_Taken]], figure: Callable[[_Taken], float | None]) -> Row:
    """Fill a row with each system's median of a figure."""
    rounds = {name: [value for one in each if (value := figure(one)) is not None] for name, each in taken.items()}
    row.rounds = {name: values for name, values in rounds.items() if values}
    row.peers = {name: statistics.median(values) for name, values in row.rounds.items()}
    row.ours = row.peers.pop("broker", None)
    return row
