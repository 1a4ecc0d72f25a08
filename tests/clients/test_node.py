"""Google's Node client, unchanged, over gRPC (D2): tests/clients/node/story.js, where node and npm are."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fixtures.broker import repository

_STORY = repository() / "tests/clients/node"
_INSTALL_SECONDS = 180

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not on PATH"),
]


@pytest.fixture(scope="module")
def story(request: pytest.FixtureRequest) -> Path:
    """The script beside an installed client, which pytest's cache keeps from one run to the next."""
    directory = Path(request.config.cache.mkdir("node-client"))
    wanted = (_STORY / "package.json").read_bytes()
    installed = directory / "installed.json"  # written last
    if not installed.exists() or installed.read_bytes() != wanted:
        shutil.copy(_STORY / "package.json", directory)
        command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
        try:
            done = _run(command, directory, {"npm_config_fetch_retries": "1"}, _INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install the client within {_INSTALL_SECONDS} s")
        if done.returncode:
            pytest.skip(f"npm cannot install the client: {' / '.join(done.stderr.split(os.linesep)[:3])}")
        installed.write_bytes(wanted)
    return Path(shutil.copy(_STORY / "story.js", directory))


def _run(
    command: Sequence[str | Path], directory: Path, environment: Mapping[str, str], seconds: float
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.mark.timeout(_INSTALL_SECONDS + 120)
def test_the_node_client_creates_publishes_receives_seeks_and_deletes(
    story: Path, emulator_host: str, project: str
) -> None:
    """D2, A1, A6, A7, A9, A12: with nothing but PUBSUB_EMULATOR_HOST set."""
    environment = {"PUBSUB_EMULATOR_HOST": emulator_host}
    done = _run(["node", story, project.removeprefix("projects/")], story.parent, environment, 100)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen == {
        "ids": 30,
        "missing": 5,  # NOT_FOUND
        "ordered": {f"key-{key}": [*range(key, 30, 3)] for key in range(3)},
        "most": seen["most"],
        "nacked": {"texts": ["nacked", "nacked"], "ids": 1},
        "once": {"texts": ["once", "once"], "answers": ["SUCCESS"] * 4},
        "metadata": [30, {"team": "billing"}, {"team": "billing"}],
        "sought": [["kept"], ["before"], seen["sought"][2]],
        "again": 6,  # ALREADY_EXISTS
        "detached": [True],
        "left": [False, 0],
    }
    assert seen["most"] <= 5
    assert seen["sought"][2] >= 30
