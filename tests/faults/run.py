"""One run: a workload under a schedule of faults, healed, drained and checked; and what it came to."""

import asyncio
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from tests.faults.checker import check
from tests.faults.checks.violation import violation
from tests.faults.clients.topology import PLANS, Plan
from tests.faults.faults import Planned, play
from tests.faults.history import Fault, History, Publish, Receive
from tests.faults.log import worries
from tests.faults.workload import Workload
from tests.faults.world import World

SLOW_DRAIN_SECONDS = 45.0  # no violation, but worth a look: the history is kept
# After its faults a run is healed (120 s), drained (90 s) and cleared away; what takes longer than this hangs.
_ENDING_SECONDS = 360.0
_CANCELLING_SECONDS = 20.0
# Of a run that was not drained, these say nothing: what is missing may still be to come.
_OF_DRAINED = {
    "lost",
    "forgotten",
    "half a publish",
    "dead letters",
    "not restored",
    "copies",
    "redrive counts",
    "backlog",
    "a story without an end",
    "an event that is missing",
}


class Result(msgspec.Struct):
    """Of one run, or of several."""

    seeds: list[int] = []
    seconds: float = 0.0
    operations: Counter[str] = msgspec.field(default_factory=Counter)  # by kind and outcome
    faults: Counter[str] = msgspec.field(default_factory=Counter)  # by kind
    failures: Counter[str] = msgspec.field(default_factory=Counter)  # of calls, by what was told
    messages: int = 0  # published, with an answer
    deliveries: int = 0
    drained_in: float = 0.0  # seconds, at most
    violations: list[str] = []
    stuck: bool = False  # it did not come to its end

    def add(self, other: "Result") -> None:
        self.seeds += other.seeds
        self.seconds += other.seconds
        self.operations += other.operations
        self.faults += other.faults
        self.failures += other.failures
        self.messages += other.messages
        self.deliveries += other.deliveries
        self.drained_in = max(self.drained_in, other.drained_in)
        self.violations += other.violations
        self.stuck |= other.stuck


async def run(
    world: World, schedule: Sequence[Planned], *, seed: int, name: str, seconds: float, keep: Path,
    plans: Sequence[Plan] = PLANS,
) -> Result:  # fmt: skip
    """A run on brokers that are up.  What is worth a look stays in `keep`: history, schedule, log.

    One that is stuck leaves brokers that nothing may be expected of, without their workers.
    """
    began = time.monotonic()
    world.take_log()
    workload = Workload(
        world.urls, run=name, seed=seed, plans=plans, guard=world.guard, superuser_url=world.superuser_url
    )
    world.endpoints = workload.endpoints
    work = asyncio.create_task(_work(workload, world, schedule, seconds))
    await asyncio.wait({work}, timeout=seconds + _ENDING_SECONDS)
    stacks = "" if work.done() else await _stop(work, world)
    result = _count(workload)
    found = [violation("stuck", text) for text in (["it did not end"] if stacks else work.result())]
    result.stuck = bool(found)
    result.seeds, result.seconds = [seed], time.monotonic() - began
    log = world.take_log()
    found += [one for one in check(workload.history) if not result.stuck or one.rule not in _OF_DRAINED]
    found += [violation("unforeseen answer", text) for text in workload.unforeseen]
    found += [violation("log", record) for record in worries(log) if not stacks]
    result.violations = [f"seed {seed}: {one}" for one in found]
    if found or result.drained_in > SLOW_DRAIN_SECONDS:
        _keep(keep, name, workload.history, schedule, log, [*result.violations, stacks])
    return result


async def _work(workload: Workload, world: World, schedule: Sequence[Planned], seconds: float) -> list[str]:
    """Returns what kept it from its end."""
    kept: list[str] = []
    try:
        async with workload.running():
            await play(schedule, world, workload.history, seconds=seconds)
    except* Exception as errors:
        kept = ["".join(traceback.format_exception(error)) for error in errors.exceptions]
    return kept


async def _stop(work: asyncio.Task[list[str]], world: World) -> str:
    """Returns where it stands; where the brokers stand is in their log."""
    stacks = [f"{task.get_name()}\n{_where(task)}" for task in asyncio.all_tasks()]
    await asyncio.to_thread(world.abort_workers)
    work.cancel()
    await asyncio.wait({work}, timeout=_CANCELLING_SECONDS)
    return "\n".join(stacks)


def _where(task: asyncio.Task[Any]) -> str:
    """What it awaits, from the outermost coroutine to the innermost."""
    lines: list[str] = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        waiting = getattr(waiting, "cr_await", None)
    return "\n".join(lines)


def _keep(
    directory: Path, name: str, history: History, schedule: Sequence[Planned], log: list[str], found: list[str]
) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    history.write(directory / f"history-{name}.jsonl")
    (directory / f"schedule-{name}.json").write_bytes(msgspec.json.encode(schedule))
    (directory / f"broker-{name}.log").write_text("\n".join(log))
    (directory / f"violations-{name}.txt").write_text("\n".join(found))


def _count(workload: Workload) -> Result:
    result = Result(drained_in=workload.drained_in, failures=workload.caller.failures)
    for operation in workload.history.operations:
        match operation:
            case Fault(name="the load stood still"):
                result.failures[operation.name] += 1
                continue
            case Fault():
                result.faults[f"{operation.name} ({operation.outcome})"] += 1
                continue
            case Publish(outcome="ok"):
                result.messages += len(operation.ids)
            case Receive():
                result.deliveries += len(operation.deliveries)
        result.operations[f"{_kind(operation)} {operation.outcome}"] += 1
    return result


def _kind(operation: object) -> str:
    name = type(operation).__name__.lower()
    return f"{name} by {operation.how}" if isinstance(operation, Receive) else name


def recheck(path: Path) -> list[str]:
    """The violations of a history that was kept."""
    return [str(one) for one in check(History.read(path))]
