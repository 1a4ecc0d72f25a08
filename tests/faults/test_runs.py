"""What a run does beside its faults: it ends even if something hangs, and its faults do what they say."""

import asyncio
from pathlib import Path

import pytest

from tests.faults import run as runs
from tests.faults.faults import KINDS, Kind, Planned
from tests.faults.layouts import Layout
from tests.faults.world import World


class _Hangs:
    name = "hang"

    async def inject(self, world: World) -> None:
        await asyncio.Event().wait()

    async def heal(self, world: World) -> None:
        """Nothing was broken."""


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_one_that_is_stuck_ends_and_says_where_it_stood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(KINDS, "hang", Kind(_Hangs, 1, 0, 0))
    monkeypatch.setattr(runs, "_ENDING_SECONDS", 3.0)
    async with Layout("lone").world(tmp_path / "data", seed=1).running() as world:
        result = await runs.run(
            world, [Planned(0.0, "hang", 0.0)], seed=1, name="1", seconds=1.0, keep=tmp_path / "found"
        )
    assert result.stuck
    assert "seed 1: stuck: it did not end" in result.violations
    assert "in inject" in (tmp_path / "found" / "violations-1.txt").read_text()
    assert "Fatal Python error: Aborted" in (tmp_path / "found" / "broker-1.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_rows_that_are_locked_for_long_make_statements_time_out(tmp_path: Path) -> None:
    schedule = [Planned(0.5, "lock rows for long", 9.5)]
    async with Layout("lone").world(tmp_path / "data", seed=1).running() as world:
        result = await runs.run(world, schedule, seed=1, name="1", seconds=10.5, keep=tmp_path / "found")
    assert result.violations == []
    assert "canceling statement due to statement timeout" in (tmp_path / "data" / "postgres.log").read_text()
