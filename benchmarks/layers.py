"""Where the time goes: processor time for a message by layer of the broker and by kind of PostgreSQL process."""

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.bench import Bench, Place, fresh_place, say
from benchmarks.generators import Throughput
from benchmarks.report import Row, number
from benchmarks.servers import Broker
from benchmarks.throughput import UNIT, drain_load, fill, publish_load
from benchmarks.wire import LoadFailed

_SECONDS_FACTOR = 2  # a load lasts so many times --seconds
_HERTZ = 500  # samples a second
_DRAINED_PER_SECOND = 250_000  # messages to drain for each second of load
_WORKER = "--multiprocessing-fork"  # in the command line of a broker process, not of its parent
_FRAME = re.compile(r"\((.+):\d+\)$")
_LAYER = re.compile(r"(?:^|/)(broker/(\w+)(?:\.py|/)|uvicorn/|asyncio/|uvloop/)")
_TOP_MODULES = 3
_LOADS = ("publish-100", "publish-single", "drain-1")


@dataclass(slots=True)
class _Stacks:
    """Samples by layer; and of each layer by the module on top of the stack."""

    layers: Counter[str] = field(default_factory=Counter)
    modules: dict[str, Counter[str]] = field(default_factory=dict)

    def read(self, text: str) -> None:
        """Lines of `frame;frame;… count`, the outermost first."""
        for line in text.splitlines():
            stack, _, count = line.rpartition(" ")
            files = [match[1] for frame in stack.split(";") if (match := _FRAME.search(frame))]
            if files:
                layer = _layer(files)
                self.layers[layer] += int(count)
                self.modules.setdefault(layer, Counter())[files[-1]] += int(count)


def _layer(files: list[str]) -> str:
    """The innermost layer: what a library does counts for whoever called it."""
    for file in reversed(files):
        if match := _LAYER.search(file):
            if match[2]:
                return "app" if match[1].endswith(".py") else match[2]
            return "uvicorn" if match[1] == "uvicorn/" else "event loop"
    return "other"


def profile(bench: Bench) -> list[Row]:
    """A broker of its own under three loads: its processor time; Python's by layers, if py-spy is installed.

    py-spy takes some processor time itself: the rates are lower than those of the measures.
    """
    broker = Broker(bench.options.workers)
    seconds = bench.options.seconds * _SECONDS_FACTOR
    rows: list[Row] = []
    try:
        bench.use(broker)
        bench.warm_up(broker, bench.options.warm_up_seconds)
        for name in _LOADS:
            with fresh_place(broker) as place:
                rows += _profile(broker, place, name, seconds)
    except LoadFailed as error:
        rows.append(Row(measure="profile", unit="", error=f"broker: {error}"))
    finally:
        broker.stop()
    return rows


def _profile(broker: Broker, place: Place, name: str, seconds: float) -> list[Row]:
    if name == "drain-1":
        fill(broker, place, int(seconds * _DRAINED_PER_SECOND))
    stacks = _Stacks()
    with _sampled(broker, stacks, seconds):
        before = _processor_seconds(broker)
        done = _load(broker, place, name, seconds)
        after = _processor_seconds(broker)
    used = {kind: (taken - before.get(kind, 0.0)) * 1e6 / done.messages for kind, taken in after.items()}
    say(f"profile of {name}: {done.per_second:,.0f} a second, {sum(used.values()):.2f} µs a message")
    total = Row(measure=f"{name}: all", unit="µs a message", ours=sum(used.values()))
    total.note = f"at {done.per_second:,.0f} {UNIT}"
    return [total, *_rows(name, used, stacks)]


def _load(broker: Broker, place: Place, name: str, seconds: float) -> Throughput:
    if name == "drain-1":
        return drain_load(broker, place, 1, seconds)
    batch, connections = (100, 2) if name == "publish-100" else (1, 64)
    return publish_load(broker, place, batch=batch, connections=connections, seconds=seconds, count=0)


def _rows(name: str, used: Mapping[str, float], stacks: _Stacks) -> Iterator[Row]:
    """A row per kind of PostgreSQL process and for Python, and below that one per layer."""
    whole = sum(used.values())
    for kind, taken in sorted(used.items(), key=lambda item: -item[1]):
        if taken > 0:
            row = Row(measure=f"{name}: {kind}", unit="µs a message", ours=taken, ratio=taken / whole)
            row.note = "ratio: of all"
            yield row
    python = sum(taken for kind, taken in used.items() if kind.startswith("python"))
    sampled = stacks.layers.total()
    for layer, count in stacks.layers.most_common():
        share = count / sampled
        row = Row(measure=f"{name}: python, {layer}", unit="µs a message", ours=python * share, ratio=share)
        top = stacks.modules[layer].most_common(_TOP_MODULES)
        on_top = ", ".join(f"{module} {number(python * part / sampled)}" for module, part in top)
        row.note = f"ratio: of Python, {sampled:,} samples; on top of the stack: {on_top}"
        yield row


def _processor_seconds(broker: Broker) -> dict[str, float]:
    """Processor time so far, by kind of process, user and system apart."""
    used: dict[str, float] = {}
    for process in broker.processes():
        with suppress(psutil.NoSuchProcess):
            times, kind = process.cpu_times(), _kind(process)
            for which, seconds in (("user", times.user), ("system", times.system)):
                used[f"{kind}, {which}"] = used.get(f"{kind}, {which}", 0.0) + seconds
    return used


def _kind(process: psutil.Process) -> str:
    """By its title: `postgres: walwriter`, `postgres: postgres broker …`."""
    if process.name().startswith("python"):
        return "python"
    title = process.cmdline()[0] if process.cmdline() else ""
    return "postgres backends" if title.startswith("postgres: postgres ") else "postgres background"


@contextmanager
def _sampled(broker: Broker, stacks: _Stacks, seconds: float) -> Iterator[None]:
    """Samples a broker process while the block runs, if py-spy is installed.  Raises LoadFailed."""
    program = shutil.which("py-spy")
    worker = next((p for p in broker.processes() if _WORKER in p.cmdline()), None)
    if program is None or worker is None:
        say("py-spy was not found (pip install py-spy): the layers of the broker are left out")
        yield
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stacks"
        command = [program, "record", "--nonblocking", "--format", "raw", "--rate", str(_HERTZ), "--duration"]
        sampler = subprocess.Popen(
            [*command, str(round(seconds) + 1), "--pid", str(worker.pid), "--output", str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            yield
            said, _ = sampler.communicate(timeout=seconds + 60)
        except subprocess.TimeoutExpired as error:
            raise LoadFailed("py-spy did not end") from error
        finally:
            sampler.kill()
        if sampler.returncode:
            raise LoadFailed(f"py-spy: {said.strip()[-300:]}")
        stacks.read(file.read_text())
