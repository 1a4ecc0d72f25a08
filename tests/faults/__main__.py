"""Hours of faults, in runs of some minutes, each with its own seed and history; and a report.

    python -m tests.faults --minutes 60 --seed 1 --report report.json
    python -m tests.faults --seed 17 --minutes 2          # the run of seed 17 again
    python -m tests.faults --check kept/history-17.jsonl  # its history again

A run that violates something leaves its history, its schedule and the brokers' log in the directory `--keep`.  One
that does not come to its end (clients, brokers or the drain hang) is the last.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from tests.faults.faults import KINDS, make_schedule, names_for
from tests.faults.run import Result, recheck, run
from tests.faults.world import World

RUN_SECONDS = 120.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--minutes", type=float, default=2.0, help="at least so long (default: 2)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the others count on from it")
    parser.add_argument("--report", type=Path, help="a file for the report, in JSON")
    parser.add_argument("--keep", type=Path, default=Path("faults-found"), help="a directory for what is found")
    parser.add_argument("--brokers", type=int, default=1, help="1 embeds PostgreSQL; more share one (default: 1)")
    parser.add_argument("--external", action="store_true", help="behind proxies")
    for given, what in (("disk", "fills"), ("own-clocks", "step"), ("versions", "are two")):
        parser.add_argument(f"--{given}", action="store_true", help=f"one that {what}")
    parser.add_argument("--only", action="append", choices=list(KINDS), help="a kind of fault (default: by seed)")
    parser.add_argument("--run-seconds", type=float, default=RUN_SECONDS, help="of each run, without its drain")
    parser.add_argument("--check", type=Path, help="check this history, and nothing else")
    return parser.parse_args()


async def _soak(arguments: argparse.Namespace) -> Result:
    total, until = Result(), time.monotonic() + arguments.minutes * 60
    with tempfile.TemporaryDirectory(prefix="faults-") as directory:
        seed = arguments.seed
        async with World(
            Path(directory) / "data",
            brokers=arguments.brokers,
            external=arguments.external,
            seed=seed,
            disk=arguments.disk,
            own_clocks=arguments.own_clocks,
            versions=arguments.versions,
        ).running() as world:
            while not total.stuck and (time.monotonic() < until or not total.seeds):
                names = arguments.only or names_for(seed, world.gives)
                schedule = make_schedule(seed, arguments.run_seconds, names=names)
                one = await run(
                    world,
                    schedule,
                    seed=seed,
                    name=str(seed),
                    seconds=arguments.run_seconds,
                    keep=arguments.keep,
                )
                total.add(one)
                print(f"seed {seed}: {_line(one)}", flush=True)
                for text in one.violations[:20]:
                    print(f"  {text}", flush=True)
                if arguments.report:
                    arguments.report.write_bytes(msgspec.json.format(msgspec.json.encode(total), indent=2))
                seed += 1
    return total


def _line(result: Result) -> str:
    return (
        f"{result.seconds:.0f} s, {result.messages} messages, {result.deliveries} deliveries, "
        f"{sum(result.operations.values())} operations, {sum(result.faults.values())} faults, "
        f"drained in {result.drained_in:.0f} s, {len(result.violations)} violations"
    )


def _print(total: Result) -> None:
    print(f"\nseeds {total.seeds[0]} to {total.seeds[-1]}: {_line(total)}")
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
    total = asyncio.run(_soak(arguments))
    _print(total)
    return 1 if total.violations else 0


if __name__ == "__main__":
    sys.exit(main())
