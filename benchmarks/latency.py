"""Milliseconds: a lone publish, and from a publish to a pull that waits; also as multiples of one commit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.generators import run_loads
from benchmarks.load_spec import Result, Spec
from benchmarks.postgres import scratch_connection, time_commits
from benchmarks.report import Row, number
from benchmarks.servers import Server
from benchmarks.wire import LoadFailed

_UNIT = "ms"
_WAITING = "publish → waiting pull"
_WAITING_MARK = 0.1  # p50, ours : the emulator's, which looks for messages every 50 ms
_PERCENTILES = (50, 99)
_COMMIT_SECONDS = 1.0
_MIN_SAMPLES = 10


@dataclass(slots=True)
class _Taken:
    """Seconds that each of many things took on one server, over all rounds."""

    publish: list[float] = field(default_factory=list)
    pull: list[float] = field(default_factory=list)


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The value that `percent` of the values do not exceed, in milliseconds; None of too few."""
    if len(values) < _MIN_SAMPLES:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


def latency(bench: Bench) -> list[Row]:
    """Commits, lone publishes and publishes to a waiting pull, by turns; percentiles over all rounds together."""
    taken = {server.name: _Taken() for server in bench.servers}
    commits: list[float] = []
    failures: dict[str, str] = {}
    for number_ in range(bench.options.rounds + 1):
        if not number_:  # warm-up: a round like the others, forgotten
            kept, round_commits = {name: _Taken() for name in taken}, []
        else:
            kept, round_commits = taken, commits
        _commit_round(bench, round_commits, failures)
        for server in bench.servers if number_ % 2 else reversed(bench.servers):
            if server.name not in failures:
                _round(bench, server, kept[server.name], failures)
        say(f"latency, {f'round {number_}' if number_ else 'warm-up'}: done")
    return _rows(taken, commits, failures)


def _commit_round(bench: Bench, commits: list[float], failures: dict[str, str]) -> None:
    try:
        bench.use(bench.broker)
        with scratch_connection(bench.broker.database_url) as connection:
            commits += time_commits(connection, min(_COMMIT_SECONDS, bench.options.seconds))
    except LoadFailed as error:
        failures["commit"] = str(error)


def _round(bench: Bench, server: Server, taken: _Taken, failures: dict[str, str]) -> None:
    try:
        bench.use(server)
        for role, samples in (("lone_publish", taken.publish), ("waiting_pull", taken.pull)):
            with fresh_place(server) as place:
                result = latency_load(server, place, role, bench.options.seconds)
                samples += result.publish_seconds + result.pull_seconds
    except LoadFailed as error:
        failures[server.name] = str(error)


def latency_load(server: Server, place: Place, role: str, seconds: float) -> Result:
    """One message at a time, by the role lone_publish or waiting_pull.  Raises LoadFailed."""
    spec = Spec(
        role=role,
        host=server.host,
        port=server.port,
        topic=place.topic,
        subscription=place.subscriptions[0],
        seconds=seconds,
    )
    return run_loads([spec])[0]


def _rows(taken: Mapping[str, _Taken], commits: Sequence[float], failures: Mapping[str, str]) -> list[Row]:
    rows = []
    errors = "; ".join(f"{name}: {error}" for name, error in failures.items())
    for percent in _PERCENTILES:
        commit = percentile(commits, percent)
        rows.append(Row(measure=f"one PostgreSQL commit, p{percent}", unit=_UNIT, ours=commit, error=errors))
        rows[-1].note = f"{len(commits):,} commits"
        for name, values in (
            ("lone publish", {server: t.publish for server, t in taken.items()}),
            (_WAITING, {server: t.pull for server, t in taken.items()}),
        ):
            row = Row(measure=f"{name}, p{percent}", unit=_UNIT, lower_is_better=True, error=errors)
            row.ours = percentile(values["broker"], percent)
            row.emulator = percentile(values.get("emulator", []), percent)
            row.ratio = row.ours / row.emulator if row.ours and row.emulator else None
            row.mark = _WAITING_MARK if name == _WAITING and percent == 50 else None
            if row.ours and commit:
                row.note = f"{number(row.ours / commit)} commits (p{percent}); {len(values['broker']):,} samples"
            rows.append(row)
    return rows


def delay_rows(
    name: str, delays: Mapping[str, Sequence[float]], failures: Mapping[str, str], mark: float | None = None
) -> list[Row]:
    """A row for each percentile of the seconds that each server took; `mark` is for p50, ours : emulator."""
    rows = []
    for percent in _PERCENTILES:
        row = Row(measure=f"{name}, p{percent}", unit=_UNIT, lower_is_better=True)
        row.ours = percentile(delays["broker"], percent)
        row.emulator = percentile(delays.get("emulator", []), percent)
        row.ratio = row.ours / row.emulator if row.ours and row.emulator else None
        row.mark = mark if percent == 50 else None
        row.note = f"{len(delays['broker']):,} samples"
        row.error = "; ".join(f"{server}: {error}" for server, error in failures.items())
        rows.append(row)
    return rows
