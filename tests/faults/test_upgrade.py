"""Brokers are at work while the database is migrated to the next version's schema, are replaced, and come back."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.db.schema import schema_state
from tests.db.migrations.revisions import made_up
from tests.faults.faults import Planned
from tests.faults.run import run
from tests.faults.versions import NEXT, Versions
from tests.faults.world import World
from tests.fixtures.broker import repository


def test_a_broker_runs_the_code_of_its_version(tmp_path: Path) -> None:
    both = Versions(tmp_path, brokers=2)
    both.prepare()
    both.change(1)

    def known(place: int) -> tuple[Path, str]:
        """Where its code is, and the schema that it knows."""
        text = "import broker.db.schema.schema_state as s; print(s.__file__, s.head_revision())"
        program = [sys.executable, "-c", text]
        done = subprocess.run(program, capture_output=True, text=True, check=True, **both.options(place))
        file, revision = done.stdout.split()
        return Path(file).parents[3], revision

    assert known(0) == (repository(), schema_state.head_revision())
    assert known(1) == (both.code, made_up(len(NEXT)))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_upgrade_under_load_and_the_way_back_lose_nothing(tmp_path: Path) -> None:
    schedule = [Planned(2.0, "migrate", 0.0), Planned(8.0, "replace all brokers", 5.0)]
    async with World(tmp_path / "data", brokers=2, versions=True, seed=1).running() as world:
        assert schema_state.inspect(world.database_url).revision == schema_state.head_revision()
        result = await run(world, schedule, seed=1, name="1", seconds=15.0, keep=tmp_path / "found")
        assert result.violations == [], f"see {tmp_path / 'found'}"
        assert result.faults == {"migrate (ok)": 1, "replace all brokers (ok)": 1}
        assert result.messages > 100
        assert schema_state.inspect(world.database_url).revision == made_up(len(NEXT))
        assert world.versions is not None
        assert [world.versions.is_next(place) for place in range(2)] == [False, False]
