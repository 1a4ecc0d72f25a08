"""From the first release on: brokers are at work while the database is migrated, are replaced, and come back."""

import subprocess
import sys
from pathlib import Path

import pytest

from broker.store.schema import schema_state
from tests.faults.faults import Planned
from tests.faults.run import run
from tests.faults.version_faults import NEXT
from tests.faults.versions import RELEASE, Versions, has_release
from tests.faults.world import World
from tests.fixtures.broker import repository
from tests.migrations.revisions import made_up

pytestmark = pytest.mark.skipif(not has_release(), reason=f"this clone's history does not go back to {RELEASE}")


def test_a_broker_runs_the_code_of_its_version(tmp_path: Path) -> None:
    both = Versions(tmp_path, brokers=2)
    both.prepare()
    both.change(1)

    def code(place: int) -> Path:
        program = [sys.executable, "-c", "import broker; print(broker.__file__)"]
        done = subprocess.run(program, capture_output=True, text=True, check=True, **both.options(place))
        return Path(done.stdout.strip())

    assert code(0) == tmp_path / RELEASE / "broker" / "__init__.py"
    assert code(1) == repository() / "broker" / "__init__.py"


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_an_upgrade_under_load_and_the_way_back_lose_nothing(tmp_path: Path) -> None:
    schedule = [Planned(2.0, "migrate", 0.0), Planned(8.0, "replace all brokers", 5.0)]
    async with World(tmp_path / "data", brokers=2, versions=True, seed=1).running() as world:
        assert schema_state.inspect(world.database_url).revision == "0001"
        result = await run(world, schedule, seed=1, name="1", seconds=15.0, keep=tmp_path / "found")
        assert result.violations == [], f"see {tmp_path / 'found'}"
        assert result.faults == {"migrate (ok)": 1, "replace all brokers (ok)": 1}
        assert result.messages > 100
        at = schema_state.inspect(world.database_url).revision
        assert at == made_up(len(NEXT))
        assert world.versions is not None
        assert [world.versions.is_released(place) for place in range(2)] == [True, True]
