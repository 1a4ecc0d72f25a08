"""Messages of 1 KB and of 100 KB, published and drained, beside the emulator."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from benchmarks.bench import Bench, Sample, compare, fresh_place, take_sample
from benchmarks.report import Row
from benchmarks.servers import Server
from benchmarks.throughput import drain_load, fill, publish_load

_MEGABYTE = 1e6
_MOST_BYTES = 300_000_000  # of one load
_HEAP = "6g"  # of the emulator


class _Body(NamedTuple):
    words: str
    size: int
    batches: tuple[int, int]  # messages: requests of about 100 KB and of about 1 MB


_BODIES = (_Body("1 KB", 1_000, (100, 1_000)), _Body("100 KB", 100_000, (1, 10)))


def scale_bodies(bench: Bench) -> list[Row]:
    """Megabytes of message data a second; the emulator has a larger heap."""
    bench = replace(bench, emulator=None if bench.emulator is None else bench.emulator.with_heap(_HEAP))
    rows = []
    try:
        for body in _BODIES:
            rows += [_publish(bench, body, batch) for batch in body.batches]
            rows.append(_drain(bench, body))
    finally:
        bench.renew_emulator()
    return rows


def _publish(bench: Bench, body: _Body, batch: int) -> Row:
    count, seconds = _MOST_BYTES // body.size, bench.options.seconds

    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            return take_sample(
                server,
                lambda: publish_load(
                    server, place, batch=batch, connections=2, seconds=seconds, count=count, size=body.size
                ),
            )

    return _compare(bench, body, f"publish, bodies of {body.words}, batches of {batch:,}", run)


def _drain(bench: Bench, body: _Body) -> Row:
    """A backlog of 300 MB at most is filled, not measured; one puller pulls up to 1,000 and acks."""
    seconds = bench.options.seconds
    count = min(_MOST_BYTES, int(seconds * _MOST_BYTES / 3)) // body.size

    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            fill(server, place, count, batch=body.batches[1], size=body.size)
            return take_sample(server, lambda: drain_load(server, place, 1, seconds))

    return _compare(bench, body, f"drain, bodies of {body.words}, 1 puller", run)


def _compare(bench: Bench, body: _Body, name: str, run: Callable[[Server], Sample]) -> Row:
    """As `compare`, in megabytes."""
    in_megabytes = body.size / _MEGABYTE

    def sized(server: Server) -> Sample:
        sample = run(server)
        return sample._replace(value=sample.value * in_megabytes)

    row = compare(bench, Row(measure=name, unit="MB/s"), sized)
    figures = {"ours": row.ours, "emulator": row.emulator}
    row.note = "; ".join(f"{who} {mb / in_megabytes:,.0f} messages/s" for who, mb in figures.items() if mb)
    return row
