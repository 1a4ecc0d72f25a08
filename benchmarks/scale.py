"""The figures of speed with a large backlog, and beside very many idle pulls; ours alone."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from benchmarks.backlog import Backlog, database_connection
from benchmarks.bench import Bench, call_each, fresh_place, say
from benchmarks.generators import beside, run_loads
from benchmarks.load_spec import Spec
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.side_by_side import (
    Side,
    side_by_side,
    take_drain,
    take_lone_publish,
    take_publish,
    take_through,
    take_waiting_pull,
)
from benchmarks.wire import LoadFailed, build_request

_IDLE = 500  # topics, each with one subscription that a pull waits on
_PROJECT = "projects/scale"
_MEGABYTE = 1e6

Measure = Callable[[Bench, Broker, Broker], list[Row]]


def scale_backlog(bench: Bench) -> list[Row]:
    """All figures on a topic with `--claims-backlog` messages that another of its subscriptions has yet to get.

    Held against a second broker, without a backlog.
    """
    return _on_two_brokers(bench, _with_a_backlog, "with a backlog")


def scale_waiting(bench: Bench) -> list[Row]:
    """Publishing and latency while pulls wait on 500 other topics; held against a second broker, without them."""
    return _on_two_brokers(bench, _with_idle_pulls, "beside idle pulls")


def _on_two_brokers(bench: Bench, measure: Measure, words: str) -> list[Row]:
    without, carrying = Broker(bench.options.workers), Broker(bench.options.workers)
    try:
        for broker in (without, carrying):
            bench.use(broker)
            bench.warm_up(broker, bench.options.warm_up_seconds)
        return measure(bench, without, carrying)
    except LoadFailed as error:
        say(f"{words}: FAILED: {error}")
        return [Row(measure=words, unit="", error=f"broker: {error}")]
    finally:
        without.stop()
        carrying.stop()


def _with_a_backlog(bench: Bench, without: Broker, carrying: Broker) -> list[Row]:
    takes = (take_publish, take_drain, take_through, take_lone_publish, take_waiting_pull)
    words = f"backlog of {bench.options.claims_backlog:,}"
    with _backlog(carrying, bench.options.claims_backlog) as topic:
        rows = side_by_side(
            bench,
            takes,
            Side(without, partial(fresh_place, without)),
            Side(carrying, partial(fresh_place, carrying, topic=topic)),
            words,
        )
        return [*rows, _memory(without, carrying, words)]


@contextmanager
def _backlog(broker: Broker, size: int) -> Iterator[str]:
    """A topic whose first subscription has so many messages to get."""
    topic, parked = f"{_PROJECT}/topics/backlog", f"{_PROJECT}/subscriptions/parked"
    body = f'{{"topic": "{topic}"}}'.encode()
    call_each(broker, [build_request("PUT", f"/v1/{topic}"), build_request("PUT", f"/v1/{parked}", body)])
    began = time.monotonic()
    with database_connection(broker.database_url) as database:
        Backlog(database, topic, size).fill()
    say(f"backlog of {size:,}: filled in {time.monotonic() - began:.0f} s")
    yield topic


def _with_idle_pulls(bench: Bench, without: Broker, carrying: Broker) -> list[Row]:
    common = {"topics": _IDLE, "fan": 1, "host": carrying.host, "port": carrying.port, "seconds": 0.0}
    names = {"topic": f"{_PROJECT}/topics/idle", "subscription": f"{_PROJECT}/subscriptions/idle"}
    words = f"beside {_IDLE} idle pulls"
    create = Spec(**common, **names, role="spread_create", connections=16)  # type: ignore[arg-type]
    idle = Spec(**common, **names, role="idle_pulls")  # type: ignore[arg-type]
    run_loads([create])
    with beside(idle):
        rows = side_by_side(
            bench,
            (take_publish, take_lone_publish, take_waiting_pull),
            Side(without, partial(fresh_place, without)),
            Side(carrying, partial(fresh_place, carrying)),
            words,
        )
        return [*rows, _memory(without, carrying, words)]


def _memory(without: Broker, carrying: Broker, words: str) -> Row:
    used, before = carrying.memory_bytes(), without.memory_bytes()
    row = Row(measure=f"memory, {words}", unit="MB", ours=used["python"] / _MEGABYTE, lower_is_better=True)
    row.ratio = used["python"] / before["python"]
    row.rounds = {program: [value / _MEGABYTE] for program, value in used.items()}
    row.note = (
        f"without: {number(before['python'] / _MEGABYTE)}; PostgreSQL {number(used['postgres'] / _MEGABYTE)} MB "
        f"(without: {number(before['postgres'] / _MEGABYTE)})"
    )
    return row
