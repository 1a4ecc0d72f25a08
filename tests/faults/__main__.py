"""Hours of faults, in runs of some minutes, each with its own seed and history; and a report.

    python -m tests.faults --minutes 60 --seed 1 --report report.json
    python -m tests.faults --seed 17 --minutes 2          # the run of seed 17 again
    python -m tests.faults --check kept/history-17.jsonl  # its history again

The layouts of brokers take turns by seed, some runs each (layouts.py); `--brokers` and `--with` fix one.

A run that violates something leaves its history, its schedule and the brokers' log in the directory `--keep`, and
so does one that does not come to its end (clients, brokers or the drain hang); after that the brokers are new.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from tests.faults.faults import KINDS
from tests.faults.layouts import FEATURES, fixed_layout, is_possible
from tests.faults.run import recheck
from tests.faults.soak import Report, SoakPlan, line, soak

RUN_SECONDS = 120.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--minutes", type=float, default=2.0, help="at least so long (default: 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others count on from it")
    parser.add_argument("--report", type=Path, help="a file for the report, in JSON")
    parser.add_argument("--keep", type=Path, default=Path("faults-found"), help="a directory for what is found")
    parser.add_argument("--brokers", type=int, help="so many in all runs (default: each layout in turn)")
    parser.add_argument(
        "--with", dest="features", action="append", default=[], choices=FEATURES, help="a feature in all runs"
    )
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a kind of fault (default: by seed)")
    parser.add_argument("--run-seconds", type=float, default=RUN_SECONDS, help="of each run, without its drain")
    parser.add_argument("--check", type=Path, help="check this history, and nothing else")
    arguments = parser.parse_args()
    if "citus" in arguments.features and not is_possible("citus"):
        parser.error("--with citus: TEST_CITUS_BIN names no PostgreSQL with Citus")
    return arguments


def _print(report: Report) -> None:
    total = report.total
    print(f"\nseeds {total.seeds[0]} to {total.seeds[-1]}: {line(total)}")
    for name, result in report.by_layout.items():
        print(f"  {name}: {line(result)}")
    for title, counts in (("operations", total.operations), ("faults", total.faults), ("failures", total.failures)):
        print(title)
        for name, count in sorted(counts.items()):
            print(f"  {count:>9}  {name}")


def main() -> int:
    arguments = _arguments()
    if arguments.check:
        found = recheck(arguments.check)
        print("\n".join(found) or "no violations")
        return 1 if found else 0
    layout = None
    if arguments.brokers or arguments.features:
        layout = fixed_layout(arguments.brokers, arguments.features)
    plan = SoakPlan(
        seed=arguments.seed,
        minutes=arguments.minutes,
        run_seconds=arguments.run_seconds,
        keep=arguments.keep,
        report=arguments.report,
        layout=layout,
        only=arguments.only,
    )
    # Either ends the brokers, too, and leaves the report; a shell's background job ignores the first.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        report = asyncio.run(soak(plan))
    except KeyboardInterrupt:
        return 130
    _print(report)
    return 1 if report.total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
