"""Urgent messages: how soon one is in hand though millions wait before it, and what levels cost the others."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from benchmarks.backlog import Backlog, database_connection
from benchmarks.bench import Bench, Place, Sample, call_each, fresh_place, say, take_sample
from benchmarks.generators import run_loads, throughput
from benchmarks.latency import percentile
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.servers import Broker, Server
from benchmarks.side_by_side import PUBLISH, Figure, Side, Take, Taken, side_by_side, take_drain, take_publish
from benchmarks.throughput import publish_specs
from benchmarks.wire import LoadFailed, build_request

_LEVELS = 3
_MOST = 600_000  # messages of one load
_LEAST = 20  # urgent ones of a round, however slow
_SPREAD = Figure("publish, batches of 100 at all levels", mark=None)
_P50 = Figure("urgent publish → pull in hand, p50", "ms", 1.25, lower_is_better=True)
_P99 = Figure("urgent publish → pull in hand, p99", "ms", None, lower_is_better=True)


def priorities(bench: Bench) -> list[Row]:
    """Beside a backlog and beside nothing; then a topic with levels and a plain one."""
    return [*_beside_a_backlog(bench), *_beside_a_plain_topic(bench)]


def _beside_a_backlog(bench: Bench) -> list[Row]:
    """A broker of its own: two topics with levels, of which one has so many messages of the least urgent one."""
    count = bench.options.claims_backlog
    words = f"{count:,} less urgent ones wait"
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        with fresh_place(broker) as empty, fresh_place(broker) as full:
            say(f"putting {count:,} messages where they wait")
            with database_connection(broker.database_url) as database:
                Backlog(database, full.topic, count).fill()
            for place in (empty, full):
                _switch_on(broker, place)
            without, carrying = (Side(broker, partial(_kept, place)) for place in (empty, full))
            return side_by_side(bench, [_take_urgent], without, carrying, words)
    except LoadFailed as error:
        say(f"priorities: FAILED: {error}")
        return [Row(measure=words, unit="", error=f"broker: {error}")]
    finally:
        broker.stop()


def _take_urgent(server: Server, place: Place, seconds: float) -> Taken:
    spec = Spec(
        role="urgent",
        host=server.host,
        port=server.port,
        topic=place.topic,
        subscription=place.subscriptions[0],
        seconds=seconds,
        count=_LEAST,
    )
    [taken] = run_loads([spec])
    samples = taken.pull_seconds
    found = {_P50: percentile(samples, 50), _P99: percentile(samples, 99)}
    return {figure: Sample(value, {}, 0.0) for figure, value in found.items() if value is not None}


@contextmanager
def _kept(place: Place) -> Iterator[Place]:
    """The same again in each turn."""
    yield place


def _beside_a_plain_topic(bench: Bench) -> list[Row]:
    """Nobody says a level, and all say one."""
    words = f"{_LEVELS} levels"
    try:
        bench.use(bench.broker)
        without = Side(bench.broker, partial(fresh_place, bench.broker))
        levelled = Side(bench.broker, _place_with_levels(bench.broker))
        takes: list[Take] = [take_publish, take_drain, _take_spread]
        rows = side_by_side(bench, takes, without, levelled, words)
    except LoadFailed as error:
        say(f"priorities: FAILED: {error}")
        return [Row(measure=words, unit="", error=f"broker: {error}")]
    for row in rows:
        row.mark = row.mark if row.measure.startswith(PUBLISH.name) else None  # a drain looks at each level first
    return rows


def _take_spread(server: Server, place: Place, seconds: float) -> Taken:
    specs = publish_specs(
        server, place, batch=100, processes=2, connections=1, seconds=seconds, count=_MOST, levels=_LEVELS
    )
    return {_SPREAD: take_sample(server, lambda: throughput(run_loads(specs)))}


def _place_with_levels(server: Server) -> Callable[[], AbstractContextManager[Place]]:
    @contextmanager
    def place() -> Iterator[Place]:
        with fresh_place(server) as found:
            _switch_on(server, found)
            yield found

    return place


def _switch_on(server: Server, place: Place) -> None:
    extensions = {"priorities": _LEVELS}
    body = {"topic": {"name": place.topic, "extensions": extensions}, "updateMask": "extensions"}
    call_each(server, [build_request("PATCH", f"/v1/{place.topic}", json.dumps(body).encode())])
