"""One run: a workload under a schedule of faults, healed, drained and checked; and what it came to."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

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
    """A run on brokers that are up.  What is worth a look stays in `keep`: history, schedule, log."""
    began = time.monotonic()
    world.take_log()
    workload = Workload(world.urls, run=name, seed=seed, plans=plans)
    stuck = []
    try:
        async with workload.running():
            await play(schedule, world, workload.history, seconds=seconds)
    except* (AssertionError, TimeoutError) as errors:
        stuck = [violation("stuck", repr(error)) for error in errors.exceptions]
    result = _count(workload)
    result.stuck = bool(stuck)
    result.seeds, result.seconds = [seed], time.monotonic() - began
    log = world.take_log()
    found = stuck + check(workload.history)
    found += [violation("unforeseen answer", text) for text in workload.unforeseen]
    found += [violation("log", record) for record in worries(log)]
    result.violations = [f"seed {seed}: {one}" for one in found]
    if found or result.drained_in > SLOW_DRAIN_SECONDS:
        _keep(keep, name, workload.history, schedule, log, result.violations)
    return result


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
