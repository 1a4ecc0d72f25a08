"""The same figures on two brokers, one of which has something to carry: what that costs."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from benchmarks.bench import Bench, Place, Sample, fresh_place, median_cpu, say, take_sample
from benchmarks.latency import latency_load, percentile
from benchmarks.report import Row, number
from benchmarks.servers import Server
from benchmarks.throughput import UNIT, drain_sample, publish_load, through_load
from benchmarks.wire import LoadFailed


@dataclass(frozen=True, slots=True)
class Figure:
    """`mark`: with : without, that is "the same" within what a run varies."""

    name: str
    unit: str = UNIT
    mark: float | None = 0.9
    lower_is_better: bool = False


def _milliseconds(name: str, mark: float | None) -> Figure:
    return Figure(name, "ms", mark, lower_is_better=True)


PUBLISH, DRAIN, THROUGH = (
    Figure(name) for name in ("publish, batches of 100", "drain, 1 puller", "publish (100) and drain at once")
)
LONE_P50, LONE_P99 = _milliseconds("lone publish, p50", 1.25), _milliseconds("lone publish, p99", None)
WAITING_P50 = _milliseconds("publish → waiting pull, p50", 1.25)
WAITING_P99 = _milliseconds("publish → waiting pull, p99", None)

_CHECK_SECONDS = 0.5
_AT_REST = 0.08  # of a processor, both together: what idle brokers take
_REST_SECONDS = 20.0  # longest wait for it

Taken = Mapping[Figure, Sample]
Take = Callable[[Server, Place, float], Taken]


class Side(NamedTuple):
    """A broker, and a topic with a new subscription on it."""

    server: Server
    place: Callable[[], AbstractContextManager[Place]]


def take_publish(server: Server, place: Place, seconds: float) -> Taken:
    def load() -> Sample:
        return take_sample(server, lambda: publish_load(server, place, batch=100, connections=2, seconds=seconds))

    return {PUBLISH: load()}


def take_drain(server: Server, place: Place, seconds: float) -> Taken:
    return {DRAIN: drain_sample(server, place, 1, seconds)}


def take_through(server: Server, place: Place, seconds: float) -> Taken:
    return {THROUGH: take_sample(server, lambda: through_load(server, place, seconds))}


def take_lone_publish(server: Server, place: Place, seconds: float) -> Taken:
    samples = latency_load(server, place, "lone_publish", seconds).publish_seconds
    return _percentiles(samples, LONE_P50, LONE_P99)


def take_waiting_pull(server: Server, place: Place, seconds: float) -> Taken:
    samples = latency_load(server, place, "waiting_pull", seconds).pull_seconds
    return _percentiles(samples, WAITING_P50, WAITING_P99)


def _percentiles(seconds: Sequence[float], p50: Figure, p99: Figure) -> Taken:
    found = {p50: percentile(seconds, 50), p99: percentile(seconds, 99)}
    return {figure: Sample(value, {}, 0.0) for figure, value in found.items() if value is not None}


def side_by_side(bench: Bench, takes: Sequence[Take], without: Side, carrying: Side, words: str) -> list[Row]:
    """Rounds by turns on both sides, after one that is not counted; a row per figure, its ratio with : without."""
    samples: dict[Figure, tuple[list[Sample], list[Sample]]] = {}
    error = ""
    try:
        for take in takes:
            for round_ in range(bench.options.rounds + 1):
                turns = [(0, without), (1, carrying)]
                for which, side in turns if round_ % 2 else reversed(turns):
                    _wait_for_rest((without.server, carrying.server))
                    with side.place() as place:
                        taken = take(side.server, place, bench.options.seconds)
                    for figure, sample in taken.items() if round_ else ():
                        samples.setdefault(figure, ([], []))[which].append(sample)
                        say(f"{figure.name}, {(f'without {words}', words)[which]}: {number(sample.value)}")
    except LoadFailed as failed:
        error = f"broker: {failed}"
        say(f"{words}: FAILED: {failed}")
    rows = [_row(figure, *taken, words) for figure, taken in samples.items()]
    return [*rows, Row(measure=words, unit="", error=error)] if error else rows


_PLAIN = (take_publish, take_drain, take_through, take_lone_publish, take_waiting_pull)


def plain_topics(bench: Bench, measure: str, without: Server, carrying: Server, words: str) -> list[Row]:
    """Plain topics of two servers, which are started for it, warmed up and stopped."""
    servers = without, carrying
    try:
        for server in servers:
            bench.use(server)
            bench.warm_up(server, bench.options.warm_up_seconds)
        one, other = (Side(server, partial(fresh_place, server)) for server in servers)
        return side_by_side(bench, _PLAIN, one, other, words)
    except LoadFailed as error:
        say(f"{measure}: FAILED: {error}")
        return [Row(measure=measure, unit="", error=f"broker: {error}")]
    finally:
        for server in reversed(servers):
            server.stop()


def _wait_for_rest(servers: Sequence[Server]) -> None:
    """Until they have done what the turn before left them to do, such as to delete its messages."""
    gives_up = time.monotonic() + _REST_SECONDS
    before = _processor_seconds(servers)
    while time.monotonic() < gives_up:
        time.sleep(_CHECK_SECONDS)
        now = _processor_seconds(servers)
        used, before = now - before, now
        if used < _AT_REST * _CHECK_SECONDS:
            return


def _processor_seconds(servers: Sequence[Server]) -> float:
    return sum(sum(server.cpu_seconds().values()) for server in {id(server): server for server in servers}.values())


def _row(figure: Figure, without: Sequence[Sample], carrying: Sequence[Sample], words: str) -> Row:
    row = Row(measure=f"{figure.name}, {words}", unit=figure.unit, mark=figure.mark)
    row.lower_is_better = figure.lower_is_better
    row.rounds = {"broker": [s.value for s in carrying], "without": [s.value for s in without]}
    row.cpu = median_cpu(carrying)
    if row.cpu:
        row.others = max(sample.others for sample in [*without, *carrying])
    if without and carrying:
        before = statistics.median(row.rounds["without"])
        row.ours = statistics.median(row.rounds["broker"])
        row.ratio = row.ours / before
        row.note = f"without: {number(before)}; ratio: with : without{_processor_time(without, row.cpu)}"
    return row


def _processor_time(without: Sequence[Sample], carrying: Mapping[str, float]) -> str:
    """Of both sides: it varies less from round to round than what is done in a second."""
    before = median_cpu(without)
    if not before:
        return ""
    parts = ", ".join(f"{name} {carrying.get(name, 0.0):.2f} : {used:.2f}" for name, used in before.items())
    return f"; µs of processor a message: {sum(carrying.values()):.2f} : {sum(before.values()):.2f} ({parts})"
