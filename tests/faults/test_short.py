"""Nothing acknowledged is lost, nothing is reordered or doubled, whatever dies: in short runs of fixed seeds.

Hours of the same: `make soak`.  A run that violates something leaves its history in the test's directory.
"""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.faults.faults import KINDS, Planned, kinds_for, make_schedule
from tests.faults.layouts import LAYOUTS, ON_CITUS, RUNS_EACH, Layout, is_possible, layout_of
from tests.faults.run import Result, run
from tests.fixtures.citus import NEEDS_CITUS


async def _run(directory: Path, layout: Layout, schedule: list[Planned], *, seed: int, seconds: float) -> Result:
    async with layout.world(directory / "data", seed=seed).running() as world:
        result = await run(world, schedule, seed=seed, name=str(seed), seconds=seconds, keep=directory / "found")
    assert result.violations == [], f"see {directory / 'found'}"
    return result


async def _run_these(directory: Path, layout: Layout, schedule: list[Planned], *, seed: int) -> Result:
    """For four seconds; each of these faults has happened once."""
    result = await _run(directory, layout, schedule, seed=seed, seconds=4.0)
    assert result.faults == {f"{planned.name} (ok)": 1 for planned in schedule}
    assert result.messages > 0
    return result


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(300)
async def test_faults_of_a_few_seconds_violate_nothing(tmp_path: Path) -> None:
    schedule = [
        Planned(0.0, "hold vacuum back", 4.0),
        Planned(1.0, "terminate sessions", 0.5),
        Planned(1.7, "kill a worker", 0.0),
        Planned(2.5, "cancel statements", 0.5),
        Planned(3.2, "crash postgres", 0.0),
    ]
    result = await _run_these(tmp_path, Layout("lone"), schedule, seed=1)
    assert result.deliveries > 0


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nor_do_faults_of_the_network(tmp_path: Path) -> None:
    schedule = [
        Planned(0.5, "cut clients", 0.0),
        Planned(1.0, "lose answers to clients", 1.0),
        Planned(1.5, "cut the database", 0.0),
        Planned(2.0, "lose answers after commit", 1.0),
        Planned(3.2, "clients vanish", 0.5),
        Planned(3.4, "endpoints reset", 0.3),
    ]
    layout = Layout("behind proxies", features=("external",))
    await _run_these(tmp_path, layout, schedule, seed=2)


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_nor_do_keys_and_roles_that_change_while_callers_must_show_who_they_are(tmp_path: Path) -> None:
    """Over TLS, with `--auth required`: who is denied has done nothing, and what was open with an old key ends."""
    schedule = [
        Planned(0.5, "rotate the key", 0.0),
        Planned(1.5, "take the role", 0.7),
        Planned(2.0, "kill a worker", 0.0),
        Planned(2.5, "terminate sessions", 0.5),
    ]
    result = await _run_these(tmp_path, Layout("guarded", features=("guarded",)), schedule, seed=3)
    assert result.failures["PERMISSION_DENIED"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "layout"),
    [
        pytest.param(5, Layout("lone"), marks=pytest.mark.ci),
        (6, Layout("two behind proxies", 2, ("external",))),
        pytest.param(7, Layout("two", 2), marks=pytest.mark.ci),
        pytest.param(11, ON_CITUS, marks=NEEDS_CITUS),
        pytest.param(12, ON_CITUS, marks=NEEDS_CITUS),
    ],
    ids=lambda value: str(getattr(value, "name", value)),
)
async def test_nor_do_mixed_faults_for_most_of_a_minute(tmp_path: Path, seed: int, layout: Layout) -> None:
    names = kinds_for(layout.world(tmp_path, seed=seed).gives)
    result = await _run(tmp_path, layout, make_schedule(seed, 45.0, names=names), seed=seed, seconds=45.0)
    assert result.messages > 0
    assert result.faults


def test_a_schedule_is_that_of_its_seed_and_ends_in_time() -> None:
    schedule = make_schedule(1, 1800.0, names=list(KINDS))
    assert schedule == make_schedule(1, 1800.0, names=list(KINDS))
    assert schedule != make_schedule(2, 1800.0, names=list(KINDS))
    assert {planned.name for planned in schedule} == set(KINDS)
    assert all(planned.at + planned.seconds <= 1800.0 for planned in schedule)
    overlapping = [
        (one, other)
        for one in schedule[1:]
        for other in schedule[1:]
        if one.at < other.at < one.at + one.seconds and one.name != other.name
    ]
    assert overlapping


def test_each_layout_has_its_turn_and_every_kind_of_fault_a_layout_that_it_can_happen_in(tmp_path: Path) -> None:
    turns = [layout_of(seed) for seed in range(RUNS_EACH * len(LAYOUTS))]
    assert [turns.count(layout) for layout in LAYOUTS] == [RUNS_EACH] * len(LAYOUTS)
    gives = [layout.world(tmp_path, seed=1).gives for layout in LAYOUTS]
    possible = {name for name, kind in KINDS.items() if is_possible(kind.needs)}
    assert {name for given in gives for name in kinds_for(given)} == possible


def test_of_a_kind_alone_one_ends_before_the_next_begins() -> None:
    schedule = make_schedule(1, 300.0, names=["database vanishes"])
    assert len(schedule) > 5
    assert all(one.at + one.seconds < other.at for one, other in pairwise(schedule))
