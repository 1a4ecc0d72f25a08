"""Nothing acknowledged is lost, nothing is reordered or doubled, whatever dies: in short runs of fixed seeds.

Hours of the same: `make soak`.  A run that violates something leaves its history in the test's directory.
"""

from pathlib import Path

import pytest

from tests.faults.faults import KINDS, Planned, kinds_for, make_schedule
from tests.faults.run import Result, run
from tests.faults.world import World


async def _run(directory: Path, schedule: list[Planned], *, seed: int, seconds: float, brokers: int = 1) -> Result:
    async with World(directory / "data", brokers=brokers, seed=seed).running() as world:
        result = await run(world, schedule, seed=seed, name=str(seed), seconds=seconds, keep=directory / "found")
    assert result.violations == [], f"see {directory / 'found'}"
    return result


async def test_faults_of_a_few_seconds_violate_nothing(tmp_path: Path) -> None:
    schedule = [
        Planned(0.0, "hold vacuum back", 4.0),
        Planned(1.0, "terminate sessions", 0.5),
        Planned(1.7, "kill a worker", 0.0),
        Planned(2.5, "cancel statements", 0.5),
        Planned(3.2, "crash postgres", 0.0),
    ]
    result = await _run(tmp_path, schedule, seed=1, seconds=4.0)
    assert result.faults == {f"{planned.name} (ok)": 1 for planned in schedule}
    assert result.messages > 50
    assert result.deliveries > 500


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("seed", "brokers"), [(5, 1), (6, 2)])
async def test_nor_do_mixed_faults_for_a_minute(tmp_path: Path, seed: int, brokers: int) -> None:
    schedule = make_schedule(seed, 60.0, names=kinds_for({""}))
    result = await _run(tmp_path, schedule, seed=seed, seconds=60.0, brokers=brokers)
    assert result.messages > 500
    assert len(result.faults) > 5


def test_a_schedule_is_that_of_its_seed_and_ends_in_time() -> None:
    schedule = make_schedule(1, 900.0, names=list(KINDS))
    assert schedule == make_schedule(1, 900.0, names=list(KINDS))
    assert schedule != make_schedule(2, 900.0, names=list(KINDS))
    assert {planned.name for planned in schedule} == set(KINDS)
    assert all(planned.at + planned.seconds <= 900.0 for planned in schedule)
    overlapping = [
        (one, other)
        for one in schedule[1:]
        for other in schedule[1:]
        if one.at < other.at < one.at + one.seconds and one.name != other.name
    ]
    assert overlapping
