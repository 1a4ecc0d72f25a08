"""Half an hour at half the top rate: nothing must grow, nothing must slow down; ours alone."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from benchmarks.backlog import database_connection
from benchmarks.bench import Bench, Place, fresh_place, say, take_sample
from benchmarks.generators import Throughput, run_loads, throughput
from benchmarks.load_spec import Result, Spec
from benchmarks.report import Row
from benchmarks.servers import Broker
from benchmarks.soak_samples import LOG, TABLES, Sample, Sampler, heading, line
from benchmarks.throughput import MESSAGE_BYTES, UNIT, fill, through_load
from benchmarks.wire import LoadFailed

_SHARE = 0.5  # of the top rate of publishing and draining at once
_BATCH = 100
_CONNECTIONS = 4
_STANDING = 100_000  # messages that always wait, about
_TOP_ROUNDS = 3
_LONGEST_SECONDS = 60.0  # of an interval; a shorter soak has ten of them
_DRAIN_GRACE = 1.5  # a puller that falls behind may take so many times an interval
_WINDOW = 5  # intervals at the end, and at the start after the first, that are compared
_RATE_MARK, _MEMORY_MARK = 0.95, 1.2  # rate: end : start; memory: end : start, a process breathes a little


@dataclass(slots=True)
class _Load:
    """Publishes and drains at one rate, interval by interval; `waiting`: published and not drained."""

    publish: Spec
    drain: Spec
    waiting: int

    def run(self, seconds: float) -> tuple[Result, Result]:
        """Raises LoadFailed if the drain does not keep up at all: what waits is to be bounded."""
        due = int(self.publish.rate * seconds) * _BATCH
        count = max(_BATCH, self.waiting + due - _STANDING)
        publish = replace(self.publish, seconds=seconds)
        drain = replace(
            self.drain, count=count, rate=count / seconds, seconds=seconds, limit_seconds=seconds * _DRAIN_GRACE
        )
        published, drained = run_loads([publish, drain])
        self.waiting += published.messages - drained.messages
        if self.waiting > _STANDING + due:
            raise LoadFailed(f"draining does not keep up with {self.publish.rate * _BATCH:,.0f} messages/s")
        return published, drained


def soak(bench: Bench) -> list[Row]:
    """A broker of its own; publishing and draining at half of its top rate, paced evenly, for `--minutes`."""
    broker = Broker(bench.options.workers)
    samples: list[Sample] = []
    top, error = 0.0, ""
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        top = _top_rate(broker, bench.options.seconds)
        with fresh_place(broker) as place:
            fill(broker, place, _STANDING)
            for sample in _intervals(broker, place, top * _SHARE, bench.options.soak_minutes):
                samples.append(sample)
                say(line(sample))
    except LoadFailed as failed:
        error = f"broker: {failed}, {broker.last_words if broker.started else ''}"
        say(f"soak: FAILED: {error}")
    except KeyboardInterrupt:
        bench.interrupted = True  # what there is is reported
    finally:
        broker.stop()
    rows = _rows(samples, top) if samples else []
    return [*rows, Row(measure="soak", unit="", error=error)] if error else rows


def _top_rate(broker: Broker, seconds: float) -> float:
    """Messages a second, published and drained at once: the median of some rounds.  Raises LoadFailed."""
    rates = []
    for _ in range(_TOP_ROUNDS):
        with fresh_place(broker) as place:
            rates.append(through_load(broker, place, seconds).per_second)
    top = statistics.median(rates)
    say(f"top rate of publishing and draining at once: {top:,.0f} messages/s")
    return top


def _intervals(broker: Broker, place: Place, rate: float, minutes: float) -> Iterator[Sample]:
    """Raises LoadFailed."""
    seconds = min(_LONGEST_SECONDS, minutes * 6)
    common = Spec(
        role="", host=broker.host, port=broker.port, topic=place.topic, subscription=place.subscriptions[0]
    )
    publish = replace(
        common,
        role="paced_batches",
        batch=_BATCH,
        size=MESSAGE_BYTES,
        rate=rate / _BATCH,
        connections=_CONNECTIONS,
    )
    load = _Load(publish, replace(common, role="paced_drain"), _STANDING)
    with database_connection(broker.database_url) as connection:
        sampler = Sampler(broker, connection)
        say(heading())
        for number in range(1, round(minutes * 60 / seconds) + 1):
            sampler.begin()
            taken: list[Result] = []

            def run(taken: list[Result] = taken) -> Throughput:
                taken.extend(load.run(seconds))
                return throughput(taken[:1])

            used = take_sample(broker, run)
            published, drained = taken
            yield sampler.end(number * seconds / 60, published, drained, used, load.waiting)


def _rows(samples: Sequence[Sample], top: float) -> list[Row]:
    rows = [_rate(samples, top), _memory(samples)]
    for percent, taken in ((50, [s.p50 for s in samples]), (99, [s.p99 for s in samples])):
        values = [value for value in taken if value is not None]
        row = Row(measure=f"soak: batches of {_BATCH}, due → answer, p{percent}", unit="ms")
        row.ours, row.rounds = statistics.median(values), {"broker": values}
        row.note = f"median of the minutes' p{percent}; the worst {max(values):.2f}"
        rows.append(row)
    wal = [sample.wal for sample in samples]
    rows.append(
        Row(measure="soak: WAL a message", unit="bytes", ours=statistics.median(wal), rounds={"broker": wal})
    )
    return rows + [_table(table, samples) for table in TABLES]


def _rate(samples: Sequence[Sample], top: float) -> Row:
    """Of what was drained; as much was published, or draining would not have kept up."""
    rates = [sample.drained for sample in samples]
    row = Row(measure=f"soak of {samples[-1].minute:g} minutes: drained", unit=UNIT, rounds={"broker": rates})
    row.ours = statistics.mean(rates[-_WINDOW:])
    row.ratio, row.mark = row.ours / statistics.mean(rates[1 : 1 + _WINDOW] or rates), _RATE_MARK
    row.note = f"at {_SHARE:.0%} of {top:,.0f}; ratio: the last {_WINDOW} minutes : minutes 2 to {1 + _WINDOW}"
    row.others = max(sample.others for sample in samples)
    row.note += f"; waiting at most {max(sample.waiting for sample in samples):,}"
    return row


def _memory(samples: Sequence[Sample]) -> Row:
    python, postgres = [s.python for s in samples], [s.postgres for s in samples]
    row = Row(measure="soak: memory at its end", unit="MB", lower_is_better=True, mark=_MEMORY_MARK)
    row.rounds = {"python": python, "postgres": postgres}
    row.ours, before = python[-1], python[min(1, len(python) - 1)]
    row.ratio = row.ours / before
    row.note = (
        f"ratio: to the end of minute 2, {before:,.0f}; the most {max(python):,.0f}; "
        f"PostgreSQL {postgres[-1]:,.0f}, the most {max(postgres):,.0f}"
    )
    return row


def _table(table: str, samples: Sequence[Sample]) -> Row:
    sizes = [sample.sizes[table] for sample in samples]
    row = Row(measure=f"soak: size of {table} at its end", unit="MB", ours=sizes[-1].all)
    row.rounds = {"broker": [size.all for size in sizes]}
    dead = max(size.dead for size in sizes)
    row.note = (
        f"indexes {sizes[-1].indexes:,.1f}; the most {max(row.rounds['broker']):,.1f}; dead rows at most {dead:,}"
    )
    if table == LOG:
        given_back = sum(max(0, a.relations - b.relations) for a, b in pairwise(sizes))
        row.note += f"; {given_back} partitions given back"
    return row
