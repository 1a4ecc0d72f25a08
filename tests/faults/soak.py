"""One run after the other, on the layout of each seed, and a report of all."""

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec

from broker.db.schema import migrations
from tests.faults.checks.violation import violation
from tests.faults.faults import make_schedule, names_for
from tests.faults.layouts import Layout, layout_of
from tests.faults.run import Result, run
from tests.faults.world import World

_MOST_FAILED_STARTS = 3  # one after the other: then there is something that no later run will mend


class SoakPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`layout`: for all runs; else each seed has its own.  `only`: the kinds of faults, else by seed."""

    seed: int
    minutes: float
    run_seconds: float
    keep: Path
    report: Path | None = None
    layout: Layout | None = None
    only: list[str] | None = None


class Report(msgspec.Struct):
    total: Result = msgspec.field(default_factory=Result)
    by_layout: dict[str, Result] = {}

    def add(self, layout: Layout, result: Result) -> None:
        self.total.add(result)
        self.by_layout.setdefault(layout.name, Result()).add(result)


async def soak(plan: SoakPlan) -> Report:
    return await _Soak(plan).run()


class _Soak:
    def __init__(self, plan: SoakPlan) -> None:
        self._plan, self._seed = plan, plan.seed
        self._until = time.monotonic() + plan.minutes * 60
        self._report = Report()

    async def run(self) -> Report:
        """At least one run; a new World for each layout, and after a run that was stuck."""
        failed = 0
        while self._goes_on() and failed < _MOST_FAILED_STARTS:
            seed, layout = self._seed, self._layout()
            try:
                with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as directory:
                    async with layout.world(Path(directory), seed=seed).running() as world:
                        if world.versions is not None:  # first of all, as one upgrades: it serves both of them
                            made = world.versions.migrations
                            await asyncio.to_thread(migrations.upgrade, world.database_url, directory=made)
                        await self._run_in(world, layout)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                found = violation("stuck", f"brokers do not start or stop: {error!r}")
                self._note(layout, Result(seeds=[self._seed], violations=[f"seed {seed}: {found}"], stuck=True))
            failed = failed + 1 if self._seed == seed else 0
        return self._report

    async def _run_in(self, world: World, layout: Layout) -> None:
        stuck = False
        while not stuck and self._goes_on() and self._layout() == layout:
            plan, seed = self._plan, self._seed
            names = plan.only or names_for(seed, world.gives)
            schedule = make_schedule(seed, plan.run_seconds, names=names)
            result = await run(world, schedule, seed=seed, name=str(seed), seconds=plan.run_seconds, keep=plan.keep)
            self._note(layout, result)
            stuck = result.stuck
            self._seed += 1

    def _goes_on(self) -> bool:
        return time.monotonic() < self._until or not self._report.total.seeds

    def _layout(self) -> Layout:
        return self._plan.layout or layout_of(self._seed)

    def _note(self, layout: Layout, result: Result) -> None:
        self._report.add(layout, result)
        print(f"seed {result.seeds[0]} ({layout.name}): {line(result)}", flush=True)
        for text in result.violations[:20]:
            print(f"  {text}", flush=True)
        if self._plan.report:
            self._plan.report.write_bytes(msgspec.json.format(msgspec.json.encode(self._report), indent=2))


def line(result: Result) -> str:
    return (
        f"{result.seconds:.0f} s, {result.messages} messages, {result.deliveries} deliveries, "
        f"{sum(result.operations.values())} operations, {sum(result.faults.values())} faults, "
        f"drained in {result.drained_in:.0f} s, {len(result.violations)} violations"
    )
