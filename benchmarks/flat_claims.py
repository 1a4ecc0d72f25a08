"""Claims stay flat: how long a pull takes with a small and with a large backlog.

A broker of its own with 10,000 messages, then with `--claims-backlog` more on another topic.  Every case brings its
subscription to some place in the backlog and pulls there, by HTTP, without waiting.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from benchmarks.backlog import KEYS, Backlog, database_connection
from benchmarks.bench import Bench, say
from benchmarks.flat_looks import INSPECTION_READS
from benchmarks.flat_seeks import SEEKS, Seek
from benchmarks.flat_walk import walk
from benchmarks.latency import percentile
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.statement_log import StatementLog
from benchmarks.wire import Connection, LoadFailed, build_request

SMALL = 10_000
_MARK = 2.0  # the large backlog : the small
_PLACES = 12  # that a case pulls at
_LOOKED_AT = 10_000  # messages that one step of a claim looks at (core/claiming/transaction/fresh.py)
_KEPT_ALIVE_SECONDS = 1.0  # the broker closes a connection that is idle for longer than some seconds
_HUNDREDTH, _RARE = {"filter": "attributes:hundredth"}, {"filter": "attributes:rare"}
_ORDERED = {"enableMessageOrdering": True}


def _project(size: int) -> str:
    """The project of a backlog: what is listed of a project is that backlog's alone."""
    return f"projects/flat-{size}"


@dataclass(slots=True)
class Ground:
    """A topic with its backlog, its subscriptions, and a connection to the broker."""

    backlog: Backlog
    broker: Broker
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    _connection: Connection | None = None
    _used_at: float = 0.0

    @property
    def project(self) -> str:
        return _project(self.backlog.size)

    def subscription(self, name: str) -> str:
        return f"{self.project}/subscriptions/{name}-{self.backlog.size}"

    def call(self, method: str, path: str, body: object = None) -> tuple[float, bytes]:
        """Seconds that a call took, and its answer.  Raises LoadFailed."""
        request = build_request(method, f"/v1/{path}", json.dumps(body or {}).encode())
        connection = self._connect()
        began = time.perf_counter()
        answer = connection.call(request)
        self._used_at = time.monotonic()
        return time.perf_counter() - began, answer

    def _connect(self) -> Connection:
        """The connection; another one if the broker may have closed it, as nothing was sent for a while."""
        if self._connection is None or time.monotonic() - self._used_at > _KEPT_ALIVE_SECONDS:
            self.close()
            self._connection = Connection(self.broker.host, self.broker.port)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def pull(self, name: str, max_messages: int) -> tuple[float, int]:
        """Seconds that a pull took, and how many messages it brought."""
        body = {"maxMessages": max_messages, "returnImmediately": True}
        seconds, answer = self.call("POST", f"{self.subscription(name)}:pull", body)
        return seconds, answer.count(b'"ackId"')

    def somewhere(self) -> int:
        """A sequence with a step's messages behind it."""
        return self.dice.randint(1, self.backlog.size - _LOOKED_AT + 1)


@dataclass(frozen=True, slots=True)
class Case:
    """`go` brings the subscription to each of the `places`, after one to warm up; then come `pulls` pulls.

    They must bring messages (none if `empty`).  `prepare` runs once, before the first place.
    """

    measure: str
    subscription: str
    max_messages: int
    go: Callable[[Ground, str], None]
    pulls: int = 1
    places: int = _PLACES
    empty: bool = False
    prepare: Callable[[Ground, str], None] = lambda ground, name: None


def _anywhere(ground: Ground, name: str) -> None:
    ground.backlog.place(ground.subscription(name), ground.somewhere())


def _hold(ground: Ground, name: str) -> None:
    ground.backlog.hold_keys(ground.subscription(name))


def _anywhere_held(ground: Ground, name: str) -> None:
    ground.backlog.place(ground.subscription(name), ground.somewhere(), forget="free-%")


def _at_the_end_held(ground: Ground, name: str) -> None:
    ground.backlog.place(ground.subscription(name), ground.backlog.size + 1, forget="free-%")


def _settle(ground: Ground, name: str) -> None:
    ground.backlog.settle_keys(ground.subscription(name))


def _quarter_due(ground: Ground, name: str) -> None:
    count = ground.backlog.size // 4
    ground.backlog.put_out(ground.subscription(name), count, size=100, due_in=timedelta(seconds=-1))


def _stay(_: Ground, __: str) -> None:
    pass


CASES = (
    Case("pull(10)", "plain", 10, _anywhere, pulls=5),
    Case("pull(1000)", "plain", 1000, _anywhere, pulls=5),
    Case("pull(10), 1 of 100 matches", "hundredth", 10, _anywhere, pulls=5),
    Case("pull(1000), 1 of 100 matches", "hundredth", 1000, _anywhere),
    Case("pull(10), ordered", "ordered", 10, _anywhere, pulls=5),
    Case("pull(1000), ordered", "ordered", 1000, _anywhere, pulls=5),
    Case("pull(1), all keys held but of 1 in 1,000", "held", 1, _anywhere_held, pulls=5, prepare=_hold),
    Case("pull(1000), all keys held but of 1 in 1,000", "held", 1000, _anywhere_held),
    Case("pull(10), all keys held and passed", "held", 10, _at_the_end_held, pulls=5, empty=True),
    Case("pull(10), all keys settled and due", "settled", 10, _stay, pulls=5, prepare=_settle),
    Case("pull(1000), all keys settled and due", "settled", 1000, _stay, places=8, prepare=_settle),
    Case("pull(10), a quarter due again", "quarter", 10, _quarter_due, pulls=5),
    Case("pull(1000), a quarter due again", "quarter", 1000, _quarter_due),
)
_SUBSCRIPTIONS: dict[str, dict[str, object]] = {
    "parked": {},  # its cursor stays at the start, so nothing is dropped
    "plain": {},
    "hundredth": dict(_HUNDREDTH),
    "rare": dict(_RARE),
    "ordered": dict(_ORDERED),
    "held": dict(_ORDERED),
    "settled": dict(_ORDERED),
    "quarter": {},
    "sought": {},
    "sought-ordered": dict(_ORDERED),
}

Samples = list[float]
_Taken = dict[str, dict[int, Samples]]
_Measure = Callable[[Broker, Sequence[int], _Taken, dict[str, str], dict[str, str]], None]


def flat_claims(bench: Bench) -> list[Row]:
    """Every case with the small backlog, then with the large one; ours alone: the emulator's heap ends before."""
    return _on_a_broker(bench, _measure_claims)


def flat_looking(bench: Bench) -> list[Row]:
    """Every call that looks at messages, with either backlog by turns."""
    return _on_a_broker(bench, _measure_looks)


def _on_a_broker(bench: Bench, measure: _Measure) -> list[Row]:
    taken: _Taken = {}
    failures: dict[str, str] = {}
    notes: dict[str, str] = {}
    broker = Broker(bench.options.workers)
    try:
        bench.use(broker)
        measure(broker, (SMALL, bench.options.claims_backlog), taken, failures, notes)
    except LoadFailed as error:
        failures["all of it"] = str(error)
    finally:
        broker.stop()
    rows = [
        _row(measured, by_size, failures.pop(measured, ""), notes.get(measured, ""))
        for measured, by_size in taken.items()
    ]
    return rows + [Row(measure=measured, unit="ms", error=error) for measured, error in failures.items()]


@contextmanager
def _ground(broker: Broker, size: int) -> Iterator[Ground]:
    topic = f"{_project(size)}/topics/backlog-{size}"
    connection = Connection(broker.host, broker.port)
    connection.call(build_request("PUT", f"/v1/{topic}"))
    connection.close()
    with database_connection(broker.database_url) as database:
        ground = Ground(Backlog(database, topic, size), broker)
        try:
            for name, options in _SUBSCRIPTIONS.items():
                body = {"topic": topic, "ackDeadlineSeconds": 600, **options}
                ground.call("PUT", ground.subscription(name), body)
            began = time.monotonic()
            ground.backlog.fill()
            say(f"backlog of {size:,}: filled in {time.monotonic() - began:.0f} s")
            yield ground
        finally:
            ground.close()


def _measure_claims(
    broker: Broker, sizes: Sequence[int], taken: _Taken, failures: dict[str, str], notes: dict[str, str]
) -> None:
    """Measures with each backlog before the next one is there."""
    for size in sizes:
        with _ground(broker, size) as ground:
            _measure_all(ground, taken, failures, notes)


def _measure_all(ground: Ground, taken: _Taken, failures: dict[str, str], notes: dict[str, str]) -> None:
    for case in CASES:
        samples = taken.setdefault(case.measure, {}).setdefault(ground.backlog.size, [])
        try:
            samples += _run(ground, case)
        except LoadFailed as error:
            failures[case.measure] = f"with {ground.backlog.size:,}: {error}"
        _report(case.measure, ground.backlog.size, samples)
    measure = "until the one match of 1,000,000 is delivered"
    taken.setdefault(measure, {})[ground.backlog.size], notes[measure] = _find_the_rare_one(ground)
    _report(measure, ground.backlog.size, taken[measure][ground.backlog.size])
    _measure_each(SEEKS, ground, taken, failures)


def _measure_looks(
    broker: Broker, sizes: Sequence[int], taken: _Taken, failures: dict[str, str], notes: dict[str, str]
) -> None:
    """Measures with all backlogs by turns."""
    with ExitStack() as stack:
        grounds = [stack.enter_context(_ground(broker, size)) for size in sizes]
        for ground in grounds:
            ground.backlog.give_up(ground.subscription("sought"))
        for look in INSPECTION_READS:
            by_size = taken.setdefault(look.measure, {})
            try:
                for ground, samples in zip(grounds, look.run(grounds), strict=True):
                    by_size[ground.backlog.size] = samples
                    _report(look.measure, ground.backlog.size, samples)
            except LoadFailed as error:
                failures[look.measure] = str(error)
        _walk_all(broker, grounds[-1], taken, failures, notes)
        with StatementLog(broker) as log:
            for look in INSPECTION_READS:
                if look.measure not in failures:
                    counts = [look.count_statements(ground, log) for ground in grounds]
                    notes[look.measure] = f"statements: {', '.join(map(str, counts))};"


def _walk_all(
    broker: Broker, ground: Ground, taken: _Taken, failures: dict[str, str], notes: dict[str, str]
) -> None:
    measure = "look: a page of 1,000 of all messages, to the end"
    try:
        found = walk(broker, ground)
    except LoadFailed as error:
        failures[measure] = str(error)
        return
    taken[measure] = {ground.backlog.size: found.pages}
    end = "to the end" if found.is_whole else "not to the end"
    notes[measure] = f"{found.messages:,} messages, {end}, each once, while others publish;"
    _report(measure, ground.backlog.size, found.pages)


def _measure_each(acts: Sequence[Seek], ground: Ground, taken: _Taken, failures: dict[str, str]) -> None:
    for act in acts:
        samples = taken.setdefault(act.measure, {}).setdefault(ground.backlog.size, [])
        try:
            samples += act.run(ground)
        except LoadFailed as error:
            failures[act.measure] = f"with {ground.backlog.size:,}: {error}"
        _report(act.measure, ground.backlog.size, samples)


def _run(ground: Ground, case: Case) -> Samples:
    samples: Samples = []
    case.prepare(ground, case.subscription)
    for place in range(case.places + 1):
        case.go(ground, case.subscription)
        for _ in range(case.pulls):
            seconds, count = ground.pull(case.subscription, case.max_messages)
            if (count == 0) != case.empty:
                raise LoadFailed(f"a pull brought {count} messages")
            samples += [seconds] if place else []
    return samples


def _find_the_rare_one(ground: Ground) -> tuple[Samples, str]:
    """Seconds of each pull until the first match comes, from the start of the backlog."""
    ground.backlog.place(ground.subscription("rare"), 1)
    samples: Samples = []
    count = 0
    while not count:
        seconds, count = ground.pull("rare", 10)
        samples.append(seconds)
        if len(samples) > ground.backlog.size // _LOOKED_AT + 10:
            raise LoadFailed("the match did not come")
    away = min(ground.backlog.size, 1_000_000)
    note = f"{away:,} messages away: {len(samples)} pulls, {sum(samples):.2f} s in all; each pull:"
    return samples, note


def _report(measure: str, size: int, samples: Sequence[float]) -> None:
    if samples:
        say(f"{measure}, {size:,}: {_figures(samples)}")


def _figures(samples: Sequence[float]) -> str:
    p50, p99 = _p50(samples), percentile(samples, 99)
    return f"p50 {number(p50)}, {'p99' if p99 else 'most'} {number(p99 or max(samples) * 1000)}"


def _p50(samples: Sequence[float]) -> float:
    return sorted(samples)[len(samples) // 2] * 1000


def _row(measure: str, by_size: dict[int, Samples], error: str, note: str) -> Row:
    """`ours` is the median with the large backlog; the ratio is to that with the small one."""
    marked = {case.measure for case in CASES} | {check.measure for check in INSPECTION_READS}
    marked |= {seek.measure for seek in SEEKS if seek.flat}
    row = Row(measure=measure, unit="ms", lower_is_better=True, error=error)
    row.mark = _MARK if measure in marked else None
    row.rounds = {f"{size:,}": [sample * 1000 for sample in samples] for size, samples in by_size.items()}
    figures = [f"{size:,}: {_figures(samples)}" for size, samples in by_size.items() if samples]
    row.note = " ".join(part for part in (note, "; ".join(figures)) if part)
    medians = [_p50(samples) for _, samples in sorted(by_size.items()) if samples]
    row.ours = medians[-1] if medians else None
    if row.mark and len(medians) > 1:
        row.ratio = medians[-1] / medians[0]
    return row


assert KEYS >= SMALL  # else the small backlog would have more messages a key than the large one
