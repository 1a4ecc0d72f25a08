"""Messages a second: publishing, draining, both at once, and publishing to many subscriptions."""

import statistics
from collections.abc import Callable

from benchmarks.bench import Bench, Place, Sample, compare, fresh_place, median_cpu, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.servers import Server
from benchmarks.wire import LoadFailed

_UNIT = "messages/s"
_MESSAGE_BYTES = 75  # 100 characters of base64
_BACKLOG_PER_SECOND = 100_000  # messages to drain per second of load; a faster server ends early
_PREPARED_BATCH = 1_000  # how a backlog is filled
_MOST = 600_000  # messages of one load: the emulator keeps them in its heap, at 600-700 bytes each
_MANY = 1_000  # subscriptions

Load = Callable[[Server, Place], Throughput]


def publish_specs(
    server: Server,
    place: Place,
    *,
    batch: int,
    processes: int,
    connections: int,
    seconds: float = 0,
    count: int = 0,
    timed: bool = False,
) -> list[Spec]:
    """Publishers: `count` (in all) or `seconds` bounds them."""
    return [
        Spec(
            role="publish",
            host=server.host,
            port=server.port,
            topic=place.topic,
            batch=batch,
            size=_MESSAGE_BYTES,
            connections=connections,
            seconds=seconds,
            count=count // processes,
            timed=timed,
        )
        for _ in range(processes)
    ]


def fill(server: Server, place: Place, count: int) -> None:
    """Publish `count` messages, not measured.  Raises LoadFailed."""
    run_loads(publish_specs(server, place, batch=_PREPARED_BATCH, processes=2, connections=1, count=count))


def drain_specs(server: Server, place: Place, pullers: int, seconds: float, limit: float = 0) -> list[Spec]:
    """Pullers: until the backlog is empty, at most for `seconds`, or with `limit` at least."""
    return [
        Spec(
            role="drain",
            host=server.host,
            port=server.port,
            subscription=place.subscriptions[0],
            seconds=seconds,
            limit_seconds=limit,
        )
        for _ in range(pullers)
    ]


def _measured(load: Load) -> Callable[[Server], Sample]:
    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            return take_sample(server, lambda: load(server, place))

    return run


def _publish(bench: Bench, name: str, *, batch: int, connections: int, mark: float | None) -> list[Row]:
    """Two processes publish as fast as they are answered, to a topic with one subscription."""

    def load(server: Server, place: Place) -> Throughput:
        each, seconds = connections // 2, bench.options.seconds
        specs = publish_specs(
            server, place, batch=batch, processes=2, connections=each, seconds=seconds, count=_MOST
        )
        return throughput(run_loads(specs))

    return [compare(bench, Row(measure=name, unit=_UNIT, mark=mark), _measured(load))]


def publish_100(bench: Bench) -> list[Row]:
    return _publish(bench, "publish, batches of 100, 2 connections", batch=100, connections=2, mark=1.0)


def publish_1000(bench: Bench) -> list[Row]:
    return _publish(bench, "publish, batches of 1,000, 2 connections", batch=1000, connections=2, mark=None)


def publish_single(bench: Bench) -> list[Row]:
    return _publish(bench, "publish, single messages, 64 connections", batch=1, connections=64, mark=1.5)


def _drain(bench: Bench, pullers: int) -> list[Row]:
    """A backlog is filled, not measured; pullers pull up to 1,000 and ack, until it is empty or time is up."""
    name = f"drain, pull(1000) and ack, {pullers} puller{'s' if pullers > 1 else ''}"
    seconds = bench.options.seconds

    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            fill(server, place, int(seconds * _BACKLOG_PER_SECOND))
            specs = drain_specs(server, place, pullers, seconds)
            return take_sample(server, lambda: throughput(run_loads(specs)))

    return [compare(bench, Row(measure=name, unit=_UNIT, mark=4.0), run)]


def drain_1(bench: Bench) -> list[Row]:
    return _drain(bench, 1)


def drain_2(bench: Bench) -> list[Row]:
    return _drain(bench, 2)


def publish_and_drain(bench: Bench) -> list[Row]:
    """Two publishers with batches of 100 and a puller; the figure is what went all the way: published and acked.

    The puller goes on after the publishers until nothing is left, so a server that lets a backlog grow pays for it.
    """

    def load(server: Server, place: Place) -> Throughput:
        return _through(server, place, bench.options.seconds)

    row = Row(measure="publish (100) and drain at once", unit=_UNIT, mark=1.5)
    return [compare(bench, row, _measured(load))]


def _through(server: Server, place: Place, seconds: float) -> Throughput:
    publishers = publish_specs(server, place, batch=100, processes=2, connections=1, seconds=seconds, count=_MOST)
    pullers = drain_specs(server, place, 1, seconds, limit=10 * seconds)
    results = run_loads([*publishers, *pullers])
    published = sum(result.messages for result in results[: len(publishers)])
    acked = results[-1].messages
    if acked < published:
        raise LoadFailed(f"{published} messages were published, {acked} came out in {10 * seconds:g} s")
    return throughput(results[-1:])


def warm_up(server: Server, seconds: float) -> None:
    """Load a server with singles, then with batches that are drained.  Raises LoadFailed."""
    with fresh_place(server) as place:
        run_loads(publish_specs(server, place, batch=1, processes=2, connections=32, seconds=seconds / 3))
        _through(server, place, seconds * 2 / 3)


def many_subscriptions(bench: Bench) -> list[Row]:
    """Publish batches of 100 to a topic with 1 and to one with 1,000 subscriptions, by turns.

    Ours alone: the emulator holds every message once per subscription, which its heap cannot.
    """
    one = Row(measure="publish (100) to 1 subscription", unit=_UNIT)
    many = Row(measure=f"publish (100) to {_MANY:,} subscriptions", unit=_UNIT, mark=0.9)
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
    specs = publish_specs(server, place, batch=100, processes=2, connections=1, seconds=seconds)
    return take_sample(server, lambda: throughput(run_loads(specs)))
