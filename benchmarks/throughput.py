"""Messages a second: publishing, draining, and both at once."""

from collections.abc import Callable

from benchmarks.bench import Bench, Place, Sample, compare, fresh_place, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.servers import Server
from benchmarks.wire import LoadFailed

UNIT = "messages/s"
MESSAGE_BYTES = 75  # 100 characters of base64
_BACKLOG_PER_SECOND = 100_000  # messages to drain per second of load; a faster server ends early
_PREPARED_BATCH = 1_000  # how a backlog is filled
_MOST = 600_000  # messages of one load: the emulator keeps them in its heap, at 600-700 bytes each
PUBLISH_100 = "publish, batches of 100, 2 connections"
PUBLISH_1000 = "publish, batches of 1,000, 2 connections"
PUBLISH_SINGLE = "publish, single messages, 64 connections"
DRAIN_1 = "drain, pull(1000) and ack, 1 puller"
DRAIN_2 = "drain, pull(1000) and ack, 2 pullers"

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
    size: int = MESSAGE_BYTES,
    timed: bool = False,
    records: str = "",
    identified: bool = False,
    levels: int = 0,
) -> list[Spec]:
    """Publishers: `count` (in all) or `seconds` bounds them."""
    return [
        Spec(
            role="publish",
            host=server.host,
            port=server.port,
            topic=place.topic,
            batch=batch,
            size=size,
            connections=connections,
            seconds=seconds,
            count=count // processes,
            timed=timed,
            records=records,
            identified=identified,
            levels=levels,
        )
        for _ in range(processes)
    ]


def publish_load(
    server: Server,
    place: Place,
    *,
    batch: int,
    connections: int,
    seconds: float,
    count: int = _MOST,
    size: int = MESSAGE_BYTES,
) -> Throughput:
    """Two processes publish as fast as they are answered, at most `count` messages.  Raises LoadFailed."""
    each = connections // 2
    specs = publish_specs(
        server, place, batch=batch, processes=2, connections=each, seconds=seconds, count=count, size=size
    )
    return throughput(run_loads(specs))


def fill(
    server: Server, place: Place, count: int, *, batch: int = _PREPARED_BATCH, size: int = MESSAGE_BYTES
) -> None:
    """Publish `count` messages, not measured.  Raises LoadFailed."""
    run_loads(publish_specs(server, place, batch=batch, processes=2, connections=1, count=count, size=size))


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


def drain_load(server: Server, place: Place, pullers: int, seconds: float) -> Throughput:
    """Pull up to 1,000 and ack, until the backlog is empty or the time is up.  Raises LoadFailed."""
    return throughput(run_loads(drain_specs(server, place, pullers, seconds)))


def drain_sample(server: Server, place: Place, pullers: int, seconds: float) -> Sample:
    """Fill a backlog, not measured, then drain it.  Raises LoadFailed."""
    fill(server, place, int(seconds * _BACKLOG_PER_SECOND))
    return take_sample(server, lambda: drain_load(server, place, pullers, seconds))


def _measured(load: Load) -> Callable[[Server], Sample]:
    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            return take_sample(server, lambda: load(server, place))

    return run


def _publish(bench: Bench, name: str, *, batch: int, connections: int, mark: float) -> list[Row]:
    """To a topic with one subscription."""

    def load(server: Server, place: Place) -> Throughput:
        return publish_load(server, place, batch=batch, connections=connections, seconds=bench.options.seconds)

    return [compare(bench, Row(measure=name, unit=UNIT, mark=mark), _measured(load))]


def publish_100(bench: Bench) -> list[Row]:
    return _publish(bench, PUBLISH_100, batch=100, connections=2, mark=2.5)


def publish_1000(bench: Bench) -> list[Row]:
    return _publish(bench, PUBLISH_1000, batch=1000, connections=2, mark=2.0)


def publish_single(bench: Bench) -> list[Row]:
    return _publish(bench, PUBLISH_SINGLE, batch=1, connections=64, mark=2.5)


def _drain(bench: Bench, name: str, pullers: int, mark: float) -> list[Row]:
    def run(server: Server) -> Sample:
        with fresh_place(server) as place:
            return drain_sample(server, place, pullers, bench.options.seconds)

    return [compare(bench, Row(measure=name, unit=UNIT, mark=mark), run)]


def drain_1(bench: Bench) -> list[Row]:
    return _drain(bench, DRAIN_1, 1, 6.0)


def drain_2(bench: Bench) -> list[Row]:
    return _drain(bench, DRAIN_2, 2, 10.0)


def publish_and_drain(bench: Bench) -> list[Row]:
    """Two publishers with batches of 100 and a puller; the figure is what went all the way: published and acked.

    The puller goes on after the publishers until nothing is left, so a server that lets a backlog grow pays for it.
    """

    def load(server: Server, place: Place) -> Throughput:
        return through_load(server, place, bench.options.seconds)

    row = Row(measure="publish (100) and drain at once", unit=UNIT, mark=4.0)
    return [compare(bench, row, _measured(load))]


def through_load(server: Server, place: Place, seconds: float) -> Throughput:
    """Publish for `seconds` and drain it all meanwhile.  Raises LoadFailed."""
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
        through_load(server, place, seconds * 2 / 3)
