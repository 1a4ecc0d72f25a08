"""`python -m benchmarks`: measure, print a table."""

import argparse
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType

from benchmarks.attacks.__main__ import ATTACKS
from benchmarks.bench import Bench, Options, say
from benchmarks.limits import shares_of_limits
from benchmarks.measures import GROUPS, MEASURES, ONLY_IF_NAMED
from benchmarks.peer_servers import find_peers
from benchmarks.report import Row, as_json, machine, table
from benchmarks.servers import Broker, Emulator, find_emulator
from benchmarks.throughput import warm_up

_QUICK = Options(
    rounds=1,
    seconds=1.0,
    backlog=(200_000, 600_000),
    claims_backlog=500_000,
    warm_up_seconds=3.0,
    topics=100,
    subscriptions=1_000,
    spread_seconds=9.0,
    soak_minutes=1.0,
)
_NAMED = ("rounds", "seconds", "backlog", "claims_backlog", "topics", "subscriptions", "soak_minutes", "before")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the broker, beside Google's emulator where it is installed (docs/benchmarks.md).",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[*MEASURES, *GROUPS],
        metavar="NAME",
        help=f"one of: {', '.join([*MEASURES, *GROUPS])}; may be given several times",
    )
    parser.add_argument("--rounds", type=int, help="rounds that count (3); one more warms up")
    parser.add_argument("--seconds", type=float, help="how long a load lasts (3)")
    parser.add_argument(
        "--backlog",
        type=_backlog,
        help="messages, for the memory, and the first for redrive and transfers (1000000,3000000)",
    )
    parser.add_argument(
        "--claims-backlog", type=int, help="messages, for flat-claims, purges, scale-backlog and delay (10000000)"
    )
    parser.add_argument("--topics", type=int, help="topics, of scale-topics (1000)")
    parser.add_argument("--subscriptions", type=int, help="subscriptions, of console-pages and whole-lists (10000)")
    parser.add_argument("--minutes", type=float, dest="soak_minutes", help="how long soak lasts (30)")
    parser.add_argument("--attack", action="append", default=[], choices=list(ATTACKS), help="of neighbours (all)")
    parser.add_argument(
        "--attackers-elsewhere",
        action="store_true",
        help="of neighbours: attackers get only the processor time that nobody else wants, as from other machines",
    )
    parser.add_argument("--before", metavar="DIRECTORY", help="of before: a checkout with its .venv")
    parser.add_argument("--workers", type=int, default=1, help="broker processes (1)")
    parser.add_argument("--profile", action="store_true", help="the same as --only profile")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s, smaller backlogs")
    parser.add_argument("--without-emulator", action="store_true", help="measure the broker alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured there")
    return parser.parse_args(arguments)


def _backlog(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _options(given: argparse.Namespace) -> Options:
    options = replace(
        _QUICK if given.quick else Options(),
        workers=given.workers,
        attacks=tuple(given.attack),
        attackers_elsewhere=given.attackers_elsewhere,
    )
    named = {name: getattr(given, name) for name in _NAMED}
    options = replace(options, **{name: value for name, value in named.items() if value is not None})
    if options.rounds < 1 or options.seconds <= 0 or min(options.backlog) < 2_000:
        raise SystemExit("at least 1 round, some seconds, and backlogs of 2,000 messages or more")
    if min(options.topics, options.subscriptions) < 10 or options.soak_minutes < 0.5:
        raise SystemExit("at least 10 topics and subscriptions, and half a minute of soak")
    if options.claims_backlog < 100_000:
        raise SystemExit("a backlog of 100,000 messages or more is held against one of 10,000")
    return options


def _raise(number: int, _: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def _cleaned_up(bench: Bench) -> Iterator[None]:
    """Whatever ends the block, every server is stopped; a second Ctrl-C does not cut that short."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in numbers:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        bench.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0; 1 if a measure failed; 130 if it was interrupted (what was measured until then is printed)."""
    given = _parse(arguments)
    options = _options(given)
    jar = None if given.without_emulator else find_emulator()
    if jar is None and not given.without_emulator:
        say("Google's emulator was not found (gcloud components, or PUBSUB_EMULATOR_JAR, and java): broker alone")
    bench = Bench(options, Broker(options.workers), Emulator(jar) if jar else None, warm_up)
    named = [name for only in given.only or () for name in GROUPS.get(only, [only])]
    named += ["profile"] if given.profile else []
    wanted = set(named) or MEASURES.keys() - ONLY_IF_NAMED
    if not wanted.isdisjoint(GROUPS["peers"]):
        bench.peers = find_peers()
    where = machine() | {"emulator": jar.name if jar else None}
    rows: list[Row] = []
    try:
        with _cleaned_up(bench):
            for name in MEASURES:
                if name in wanted and not bench.interrupted:
                    rows += MEASURES[name](bench)
            rows += shares_of_limits(rows)
    except KeyboardInterrupt:
        bench.interrupted = True
    if bench.interrupted:
        say("interrupted")
    print(f"{where['system']}, {where['processors']} processors, Python {where['python']}, {where['at']}")
    print(f"load average before the start: {where['load_average'][0]}; others: processors busy with other work\n")
    print(table(rows))
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(rows, asdict(options), where), indent=2) + "\n")
    return 130 if bench.interrupted else int(any(row.error for row in rows))


if __name__ == "__main__":
    sys.exit(main())
