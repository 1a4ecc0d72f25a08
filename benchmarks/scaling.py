"""The model of docs/scaling.md: a grid of loads is measured, the model fitted, and held against other loads."""

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import psycopg

from benchmarks.bench import Bench, Place, Sample, fresh_place, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.load_spec import Spec
from benchmarks.report import Row
from benchmarks.scaling_model import Cost, Load, Model, Point, fit, need
from benchmarks.servers import Broker
from benchmarks.throughput import UNIT, fill, publish_load
from benchmarks.wire import LoadFailed

_SIZES, _BATCHES, _RESPONSES = (75, 1_000, 8_000), (1, 10, 100, 1_000), (10, 100, 1_000)
_HELD_OUT_PUBLISH = ((300, 30), (3_000, 30), (3_000, 3), (300, 3))
_HELD_OUT_DELIVER = ((300, 30), (3_000, 30), (3_000, 300), (300, 300))
_FILL_BYTES = 60_000_000  # of a backlog that is drained
_FILL_MESSAGES = 100_000
_PULLERS = 2
_MOST = 10_000_000  # bytes of a request, which Google bounds; base64 has a third more
_PROGRAMS = {"broker": "python", "PostgreSQL": "postgres"}

LOADS = (
    Load(name="group messages: 5,000 a second, in order", rate=5_000, size=300, batch=10, fan_out=1,
         response=100),
    Load(name="their inbox jobs: 1,000 members a job", rate=500, size=1_000, batch=10, fan_out=1, response=10),
    Load(name="notifications: 20,000 events a second to 4 channels", rate=20_000, size=500, batch=50, fan_out=4,
         response=100),
    Load(name="feed: 1,000 posts a second, 200 jobs each", rate=200_000, size=200, batch=1_000, fan_out=1,
         response=1_000),
    Load(name="a million small messages a second, one subscription", rate=1_000_000, size=100, batch=1_000,
         fan_out=1, response=1_000),
)  # fmt: skip


class _Taken(NamedTuple):
    sample: Sample
    wal: float  # bytes a message


_Places = dict[tuple[int, int], list[_Taken]]  # by size and batch, a round each


class _Grid:
    """What is measured, on one broker of its own."""

    def __init__(self, bench: Bench, broker: Broker) -> None:
        self._bench, self._broker = bench, broker
        self.rows: list[Row] = []

    def publish(self, size: int, batch: int) -> _Taken:
        connections = 32 if batch < 10 else 8 if batch < 100 else 2

        def load(place: Place) -> Throughput:
            seconds = self._bench.options.seconds
            return publish_load(
                self._broker, place, batch=batch, connections=connections, seconds=seconds, size=size
            )

        with fresh_place(self._broker) as place:
            return self._take(f"publish {size:,} B, {batch:,} a request", lambda: load(place))

    def deliver(self, size: int, response: int) -> _Taken:
        count = min(_FILL_MESSAGES, _FILL_BYTES // size)
        with fresh_place(self._broker, _PULLERS) as place:
            fill(self._broker, place, count, batch=min(1_000, _MOST // (2 * size)), size=size)
            specs = [
                Spec(
                    role="drain",
                    host=self._broker.host,
                    port=self._broker.port,
                    subscription=subscription,
                    seconds=self._bench.options.seconds,
                    max_messages=response,
                )
                for subscription in place.subscriptions
            ]
            return self._take(f"deliver {size:,} B, {response:,} a response", lambda: throughput(run_loads(specs)))

    def _take(self, name: str, load: Callable[[], Throughput]) -> _Taken:
        messages = 0

        def counted() -> Throughput:
            nonlocal messages
            done = load()
            messages = done.messages
            return done

        before = self._wal()
        sample = take_sample(self._broker, counted)
        taken = _Taken(sample, (self._wal() - before) / messages)
        costs = ", ".join(f"{program} {value:.1f} µs" for program, value in sample.cpu.items())
        say(f"{name}: {sample.value:,.0f} a second, {costs}, {taken.wal:.0f} B of the write-ahead log")
        row = Row(measure=name, unit=UNIT, ours=sample.value, cpu=dict(sample.cpu), others=sample.others)
        row.note = f"{taken.wal:.0f} B of the write-ahead log a message"
        self.rows.append(row)
        return taken

    def _wal(self) -> float:
        with psycopg.connect(self._broker.database_url) as connection:
            row = connection.execute(
                "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8"
            ).fetchone()
            return float(row[0]) if row else 0.0


def scaling(bench: Bench) -> list[Row]:
    """Publishes by size and batch, deliveries by size and response; the fit; four of each that were held out."""
    broker = Broker(bench.options.workers)
    grid = _Grid(bench, broker)
    publishes: _Places = {}
    deliveries: _Places = {}
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        for _ in range(bench.options.rounds):
            for at in (*itertools.product(_SIZES, _BATCHES), *_HELD_OUT_PUBLISH):
                if 2 * math.prod(at) > _MOST:
                    continue
                publishes.setdefault(at, []).append(grid.publish(*at))
            for at in (*itertools.product(_SIZES, _RESPONSES), *_HELD_OUT_DELIVER):
                deliveries.setdefault(at, []).append(grid.deliver(*at))
    except LoadFailed as error:
        return [*grid.rows, Row(measure="scaling", unit="", error=f"broker: {error}")]
    finally:
        broker.stop()
    costs: dict[str, Cost] = {}
    rows = []
    for what, taken, held in (
        ("publish", publishes, _HELD_OUT_PUBLISH),
        ("deliver", deliveries, _HELD_OUT_DELIVER),
    ):
        for of in (*_PROGRAMS, "log"):
            fitted = _points({at: each for at, each in taken.items() if at not in held}, of)
            cost = costs[f"{what}_{of}"] = fit(fitted)
            rows.append(_parameters(what, of, cost, fitted, _points({at: taken[at] for at in held}, of)))
    return [*grid.rows, *rows, *_needs(_model(costs))]


def _points(taken: _Places, of: str) -> list[Point]:
    """The median of the rounds; where a process that ended has taken its time with it there is no figure."""
    points = []
    for (size, batch), rounds in taken.items():
        costs = [each.wal if of == "log" else each.sample.cpu.get(_PROGRAMS[of], 0.0) for each in rounds]
        if found := [cost for cost in costs if cost > 0]:
            points.append(Point(size, batch, statistics.median(found)))
    return points


def _parameters(what: str, of: str, cost: Cost, points: Sequence[Point], held: Sequence[Point]) -> Row:
    errors = [cost.error(point) for point in held]
    row = Row(measure=f"model, {what}, {of}: error on held-out loads, median", unit="%")
    row.ours = 100 * statistics.median(errors)
    unit = "B" if of == "log" else "µs"
    fitted = 100 * statistics.median(cost.error(point) for point in points)
    row.note = (
        f"{cost.request:.1f} {unit} a request, {cost.message:.2f} a message, {cost.kilobyte:.2f} a kB; "
        f"worst {100 * max(errors):.0f} %, of those fitted {fitted:.0f} %"
    )
    return row


def _model(costs: dict[str, Cost]) -> Model:
    return Model(
        publish_broker=costs["publish_broker"],
        publish_postgres=costs["publish_PostgreSQL"],
        publish_wal=costs["publish_log"],
        deliver_broker=costs["deliver_broker"],
        deliver_postgres=costs["deliver_PostgreSQL"],
        deliver_wal=costs["deliver_log"],
    )


def _needs(model: Model) -> list[Row]:
    rows = []
    for load in LOADS:
        found = need(model, load)
        row = Row(measure=load.name, unit="broker processes", ours=found.processes())
        row.note = (
            f"broker {found.broker:.2f} and PostgreSQL {found.postgres:.2f} processors busy, "
            f"{found.processors()} for PostgreSQL, {found.wal:.1f} MB of the log a second"
        )
        rows.append(row)
    return rows
