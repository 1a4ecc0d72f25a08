"""What a change cost: this checkout's broker beside that of another one, by turns on the same machine."""

from functools import partial
from pathlib import Path

from benchmarks.bench import Bench, Place, Sample, fresh_place, say, take_sample
from benchmarks.generators import REPOSITORY
from benchmarks.latency import percentile
from benchmarks.push import backlog_count, new_lane, paced_delays, push_backlog
from benchmarks.report import Row
from benchmarks.servers import Broker, BrokerOf, Server, Sink
from benchmarks.side_by_side import Figure, Side, Taken, plain_topics, side_by_side
from benchmarks.throughput import fill
from benchmarks.wire import LoadFailed

_SAME = 0.98
_PACE = 200.0  # publishes a second
PUSH = Figure("push, a backlog to a fast endpoint", "messages/s", _SAME)
PUSH_P50 = Figure("publish → push, p50", "ms", 1.25, lower_is_better=True)
PUSH_P99 = Figure("publish → push, p99", "ms", None, lower_is_better=True)


def before(bench: Bench) -> list[Row]:
    """Plain topics of two brokers, of which one is started by the commands of the checkout `--before`."""
    checkout = bench.options.before
    if not checkout:
        return _no_checkout("before")
    then, now = _two_brokers(Path(checkout), bench.options.workers)
    rows = plain_topics(bench, "before", then, now, f"since {checkout}")
    for row in rows:
        if not row.lower_is_better:
            row.mark = _SAME
    return rows


def before_push(bench: Bench) -> list[Row]:
    """Pushes to an endpoint that answers well, of the same two brokers."""
    checkout = bench.options.before
    if not checkout:
        return _no_checkout("before-push")
    sink = Sink()
    then, now = _two_brokers(Path(checkout), bench.options.workers)
    try:
        for server in (sink, then, now):
            bench.use(server)
        takes = (partial(_take_backlog, bench, sink), partial(_take_latency, sink))
        one, other = (Side(server, partial(fresh_place, server)) for server in (then, now))
        return side_by_side(bench, takes, one, other, f"since {checkout}")
    except LoadFailed as error:
        return [Row(measure="before-push", unit="", error=f"broker: {error}")]
    finally:
        for server in (now, then, sink):
            server.stop()


def _two_brokers(checkout: Path, workers: int) -> tuple[Broker, Broker]:
    """Started in one way, so that nothing but their code differs."""
    return BrokerOf(checkout, workers), BrokerOf(REPOSITORY, workers)


def _no_checkout(measure: str) -> list[Row]:
    say(f"{measure}: --before DIRECTORY says with which checkout to compare (after `make setup` there)")
    return [Row(measure=measure, unit="", error="broker: --before DIRECTORY is missing")]


def _take_backlog(bench: Bench, sink: Sink, server: Server, place: Place, _: float) -> Taken:
    lane, count = new_lane("before"), backlog_count(bench)
    fill(server, place, count)
    return {PUSH: take_sample(server, lambda: push_backlog(bench, server, sink, place, lane, count), sink)}


def _take_latency(sink: Sink, server: Server, _: Place, seconds: float) -> Taken:
    lane = new_lane("before")
    with fresh_place(server, endpoint=sink.url(lane)) as pushed:
        delays = paced_delays(server, sink, pushed, lane, _PACE, seconds)
    found = {PUSH_P50: percentile(delays, 50), PUSH_P99: percentile(delays, 99)}
    return {figure: Sample(value, {}, 0.0) for figure, value in found.items() if value is not None}
