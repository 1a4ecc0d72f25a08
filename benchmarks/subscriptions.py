"""Publishing to a topic with many subscriptions: beside the emulator, and beside a topic with one."""

import statistics
from dataclasses import replace

from benchmarks.bench import Bench, Place, Sample, compare, fresh_place, median_cpu, say, take_sample
from benchmarks.report import Row
from benchmarks.servers import Server
from benchmarks.throughput import UNIT, publish_load
from benchmarks.wire import LoadFailed

_MANY = 1_000  # subscriptions
_HEAP = "6g"  # of the emulator, which keeps a copy for each subscription
_COPIES = 4_000_000  # that it is given to keep in one round: about 2.5 GB


def subscriptions_100(bench: Bench) -> list[Row]:
    return _beside_the_emulator(bench, 100, 8.0)


def subscriptions_1000(bench: Bench) -> list[Row]:
    return _beside_the_emulator(bench, 1_000, 40.0)


def _beside_the_emulator(bench: Bench, subscriptions: int, mark: float) -> list[Row]:
    """Batches of 100; the emulator gets a larger heap, and no more messages than that holds the copies of."""
    emulator = None if bench.emulator is None else bench.emulator.with_heap(_HEAP)
    bench = replace(bench, emulator=emulator)

    def run(server: Server) -> Sample:
        most = {"count": _COPIES // subscriptions} if server is emulator else {}
        seconds = bench.options.seconds
        with fresh_place(server, subscriptions) as place:
            return take_sample(
                server, lambda: publish_load(server, place, batch=100, connections=2, seconds=seconds, **most)
            )

    row = Row(
        measure=f"publish (100) to {subscriptions:,} subscriptions, beside the emulator", unit=UNIT, mark=mark
    )
    if emulator is not None:
        row.note = f"emulator: heap of {_HEAP}, at most {_COPIES // subscriptions:,} messages a round"
    try:
        return [compare(bench, row, run)]
    finally:
        bench.renew_emulator()


def many_subscriptions(bench: Bench) -> list[Row]:
    """Publish batches of 100 to a topic with 1 and to one with 1,000 subscriptions, by turns.  Ours alone."""
    one = Row(measure="publish (100) to 1 subscription", unit=UNIT)
    many = Row(measure=f"publish (100) to {_MANY:,} subscriptions", unit=UNIT, mark=0.9)
    many.note = f"ratio: {_MANY:,} subscriptions : 1"
    samples: dict[str, list[Sample]] = {one.measure: [], many.measure: []}
    server = bench.broker
    try:
        bench.use(server)
        with fresh_place(server) as narrow, fresh_place(server, _MANY) as wide:
            for number in range(bench.options.rounds + 1):
                turns = [(one, narrow), (many, wide)]
                for row, place in turns if number % 2 else reversed(turns):
                    sample = _publish_sample(server, place, bench.options.seconds)
                    say(f"{row.measure}, round {number}: {sample.value:,.0f}")
                    if number:
                        samples[row.measure].append(sample)
    except LoadFailed as error:
        many.error = f"broker: {error}"
    for row in (one, many):
        row.rounds = {"broker": [sample.value for sample in samples[row.measure]]}
        row.cpu = median_cpu(samples[row.measure])
        row.others = max((sample.others for sample in samples[row.measure]), default=None)
        row.ours = statistics.median(row.rounds["broker"]) if row.rounds["broker"] else None
    if one.ours and many.ours:
        many.ratio = many.ours / one.ours
    return [one, many]


def _publish_sample(server: Server, place: Place, seconds: float) -> Sample:
    return take_sample(
        server, lambda: publish_load(server, place, batch=100, connections=2, seconds=seconds, count=0)
    )
