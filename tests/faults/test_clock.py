"""The wall clock of a broker's processes steps: they feel it, and nothing comes of it."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from tests.faults.clocks import Clocks
from tests.faults.faults import Planned
from tests.faults.machine_faults import StepTheClock
from tests.faults.run import run
from tests.faults.world import World
from tests.fixtures.broker import eventually

_PROBE = """
import datetime, sys, time
for _ in sys.stdin:
    print(time.time(), time.time_ns() / 1e9, datetime.datetime.now().timestamp(),
          datetime.datetime.now(datetime.UTC).timestamp(), time.monotonic(), flush=True)
"""
_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) ")


def _stepped(lines: Iterable[str], seconds: float) -> bool:
    """Whether one of them was written with a clock that is about so far ahead."""
    times = [datetime.fromisoformat(match[1]) for line in lines if (match := _TIME.match(line))]
    return any(time > datetime.now(UTC) + timedelta(seconds=seconds / 2) for time in times)


def test_every_way_to_ask_for_the_time_feels_a_step(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", _PROBE], stdin=pipe, stdout=pipe, text=True, env=os.environ | clocks.environment(0)
    ) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None

        def reported() -> list[float]:
            assert probe.stdin is not None
            assert probe.stdout is not None
            probe.stdin.write("\n")
            probe.stdin.flush()
            return [float(word) for word in probe.stdout.readline().split()]

        *before, monotonic_before = reported()
        clocks.set(0, 100_000.0)
        *after, monotonic_after = reported()
        probe.stdin.close()
    assert all(90_000 < late - early < 110_000 for early, late in zip(before, after, strict=True))
    assert monotonic_after - monotonic_before < 10_000


@pytest.mark.slow
async def test_steps_violate_nothing_and_are_felt(tmp_path: Path) -> None:
    async with World(tmp_path / "data", clocks=True, seed=1).running() as world:
        schedule = [Planned(at, "step the clock", 2.0) for at in (0.5, 3.5, 6.0)]
        result = await run(world, schedule, seed=1, name="1", seconds=8.5, keep=tmp_path / "found")
        assert result.violations == []
        assert result.faults == {f"{StepTheClock.name} (ok)": 3}
        assert world.clocks is not None
        world.clocks.set(0, 3600.0)
        await asyncio.to_thread(_end_sessions, world.database_url)  # about which workers log a line
        await eventually(lambda: _stepped(world.brokers[0].log, 3600.0))


def _end_sessions(url: str) -> None:
    with psycopg.connect(url) as session:
        session.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'broker'")
